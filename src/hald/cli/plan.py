"""`hald plan`: what the config amounts to. `hald tables`: what of it is finished."""

import argparse
from typing import Any

from hald.cli.options import add_config
from hald.config.read import config_from
from hald.pipeline import make_plan


def add_parser(commands: Any) -> None:
    """Add `hald plan` and `hald tables` to the command line."""
    plan = commands.add_parser(
        "plan",
        help="print what the config amounts to, without doing it",
        description="Counts of teachers, image sets, label views and training runs; bytes; hours from timings; the\n"
        "Snakemake jobs that are still to run, by rule, as `snakemake -n` counts them; and what sharing spares:\n\n"
        "  not nested     if every SLC had labels of its own, and every IPC images of its own\n"
        "  cell by cell   if every cell of every table were made by itself",
        epilog="examples:\n  hald plan\n  hald plan --config 'experiments=[demo]' stores=/shared/labels",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config(plan)
    plan.add_argument("--tables", action="store_true", help="what each table takes, from nothing to its last student")
    plan.set_defaults(run=_plan)
    tables = commands.add_parser("tables", help="list the finished tables of the config (Markdown files)")
    add_config(tables)
    tables.set_defaults(run=_tables)


def _plan(options: argparse.Namespace) -> int:
    from hald.progress.summary import cost_report, report

    print((cost_report if options.tables else report)(make_plan(config_from(options.config))))
    return 0


def _tables(options: argparse.Namespace) -> int:
    from hald.plan.graph import Graph, JobId

    graph = Graph(make_plan(config_from(options.config)))
    for name in graph.plan.tables:
        if graph.is_done(JobId("table", name)):
            print(graph.plan.table_file(name, "md"))
    return 0
