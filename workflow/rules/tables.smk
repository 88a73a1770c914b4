# Tables. A table's own part of the plan is its input: it is rewritten when, and only when, the table means other runs.


def table_plan(wildcards):
    return str(PLAN.table_plan(wildcards.table))


def table_records(wildcards):
    keys = dict.fromkeys(cell.run for cell in PLAN.tables[wildcards.table].cells)
    return [record for key in keys for record in missing_records(key)]


def table_spec(wildcards):
    return to_dict(PLAN.tables[wildcards.table])


def table_folders(wildcards):
    return {cell.run: str(PLAN.run_dir(cell.run)) for cell in PLAN.tables[wildcards.table].cells}


localrules:
    table,


rule table:
    input:
        plan=table_plan,
        records=table_records,
    output:
        multiext(f"{RESULTS}/tables/{{table}}", ".csv", ".md", ".tex", ".html"),
    log:
        f"{LOGS}/table/{{table}}.log",
    conda:
        "../../envs/tables.yaml"
    params:
        stage="tables",
        code=PLAN.code["tables"],
        spec=table_spec,
        folders=table_folders,
    message:
        "writing table {wildcards.table}"
    script:
        "../scripts/table.py"
