# Results tables, each a target of its own.


localrules:
    table,


rule table:
    input:
        JOBS.table_inputs,
    output:
        f"{RESULTS}/.plan/tables/{{table}}.json",
        multiext(f"{RESULTS}/tables/{{table}}", ".csv", ".md", ".tex", ".html"),
    log:
        f"{LOGS}/table/{{table}}.log",
    conda:
        "../../envs/tables.yaml"
    params:
        work=JOBS.table,
    message:
        "writing table {wildcards.table}"
    script:
        "../scripts/table.py"
