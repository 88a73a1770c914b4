# Analyses of finished students, labels and teachers. Each finished subject is kept; a killed job goes on with the next.


rule analysis:
    input:
        OUTCOMES.analysis_inputs,
    output:
        f"{RESULTS}/analyses/{{analysis}}.json",
    log:
        f"{LOGS}/analysis/{{analysis}}.log",
    benchmark:
        f"{TIMES}/analysis/{{analysis}}.tsv"
    conda:
        "../../envs/torch.yaml"
    threads: OUTCOMES.threads
    params:
        work=OUTCOMES.analysis,
    message:
        "analysis {wildcards.analysis}"
    script:
        "../scripts/analysis.py"
