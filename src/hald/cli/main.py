"""The `hald` command."""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from hald.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Run one subcommand; a message for people and exit code 1 when something is wrong."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UserError as error:
        print(f"hald: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader (head, less) went away
        return 0
    except OSError as error:  # a place that cannot be written, a damaged file
        place = f": {error.filename}" if error.filename else "; `hald labels verify` looks for damage"
        print(f"hald: {error.strerror or error}{place}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    from hald.cli import images as images_command
    from hald.cli import labels as labels_command
    from hald.cli import runs as runs_command
    from hald.cli import status as status_command

    parser = argparse.ArgumentParser(
        prog="hald",
        description="Dataset distillation: look at plans, results and stores of the workflow in this folder.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
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
    _add_config(plan)
    plan.add_argument("--tables", action="store_true", help="what each table takes, from nothing to its last student")
    plan.set_defaults(run=_plan)
    tables = commands.add_parser("tables", help="list the finished tables of the config (Markdown files)")
    _add_config(tables)
    tables.set_defaults(run=_tables)
    images_command.add_parser(commands)
    labels_command.add_parser(commands)
    runs_command.add_parser(commands)
    _add_jobs(commands)
    status_command.add_parser(commands)
    _add_records(commands)
    _add_bless(commands)
    docs = commands.add_parser("docs", help="write the config schema and config/README.md from the source")
    docs.add_argument("--check", action="store_true", help="only compare; exit 1 when they are out of date")
    docs.set_defaults(run=_docs)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", nargs="+", default=[], metavar="KEY=VALUE", help="change settings, as for snakemake"
    )


def _add_jobs(commands: Any) -> None:
    jobs = commands.add_parser(
        "jobs",
        help="Slurm jobs that an earlier, killed run left behind: list them, wait for them, or have them save and end",
        description="Jobs of this folder in Slurm's queue, which go on when the main Snakemake process was killed:\n\n"
        "  ls     list them (also without a word)\n"
        "  wait   let the running ones finish, cancel those that have not begun\n"
        "  stop   have them save what they have, and end",
        epilog="examples:\n  hald jobs\n  hald jobs wait && snakemake --profile slurm all",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    jobs.add_argument("action", choices=["ls", "wait", "stop"], nargs="?", default="ls")
    jobs.set_defaults(run=_jobs)


def _add_records(commands: Any) -> None:
    records = commands.add_parser(
        "records",
        help="write the records of the config's experiments into one file, or put them back from there",
        description="Records of students, analyses and teachers, and hours of work, as JSON Lines:\n\n"
        "  out    write what is finished into FILE, with the day and this machine: call it where it was made. What\n"
        "         FILE has of other experiments stays\n"
        "  in     put FILE's records back into the results, where they are missing, to go on in a fresh clone or on\n"
        "         another machine. Only what today's settings and code would make again is taken",
        epilog="examples:\n"
        "  hald records out studies/cpu/records.jsonl --config 'experiments=[studies/cpu/experiments/base]'\n"
        "  hald records in studies/cpu/records.jsonl --config 'experiments=[studies/cpu/experiments/base]'",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    records.add_argument("action", choices=["out", "in"])
    records.add_argument("file", type=Path, metavar="FILE")
    _add_config(records)
    records.set_defaults(run=_records)


def _add_bless(commands: Any) -> None:
    bless = commands.add_parser(
        "bless",
        help="let changed code keep the keys of its stage, after its golden cases have shown the same numbers",
        description="In a git checkout: runs the golden cases of stages whose code has changed, and enters the code\n"
        "into their ledger (src/hald/ledger). Refused are other numbers, and changed lines that no golden case runs.",
        epilog="examples:\n"
        "  hald bless relabel recover                 # recover: all methods that optimise\n"
        "  hald bless --all                           # every stage whose code has changed\n"
        "  hald bless --new-version relabel           # other numbers, on purpose: new keys for labels and below",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bless.add_argument("stages", nargs="*", metavar="STAGE")
    bless.add_argument("--all", action="store_true", help="all stages whose code has changed")
    bless.add_argument("--new-version", nargs="+", default=[], metavar="STAGE", help="begin a new version of a stage")
    bless.set_defaults(run=_bless)


def _bless(options: argparse.Namespace) -> int:
    from hald.cli.bless import bless

    return bless(options.stages, options.all, options.new_version)


def _plan(options: argparse.Namespace) -> int:
    from hald.config.read import config_from
    from hald.pipeline import make_plan
    from hald.progress.summary import cost_report, report

    print((cost_report if options.tables else report)(make_plan(config_from(options.config))))
    return 0


def _tables(options: argparse.Namespace) -> int:
    from hald.config.read import config_from
    from hald.pipeline import make_plan
    from hald.plan.graph import Graph, JobId

    graph = Graph(make_plan(config_from(options.config)))
    for name in graph.plan.tables:
        if graph.is_done(JobId("table", name)):
            print(graph.plan.table_file(name, "md"))
    return 0


def _jobs(options: argparse.Namespace) -> int:
    from hald.cluster.queue import queued_jobs, stop_jobs, wait_for_jobs

    locks = Path(".snakemake/locks")
    if options.action != "ls" and locks.is_dir() and any(locks.iterdir()):
        raise UserError(
            "a Snakemake run holds this folder, and these are its jobs. If it was killed, first type snakemake --unlock"
        )
    if not Path(".snakemake").is_dir():
        raise UserError("nothing was ever submitted from this folder; run from the project's root folder")
    if options.action != "ls":
        (wait_for_jobs if options.action == "wait" else stop_jobs)(Path.cwd())
    jobs = queued_jobs(Path.cwd())
    for job in jobs:
        print(f"{job.number:>9}  {job.state.lower():<10} {job.node:<10} {job.what}")
    if not jobs:
        print("no jobs of this folder are in Slurm's queue")
    return 0


def _records(options: argparse.Namespace) -> int:
    from hald.cli.records import plans_of, records_in, records_out
    from hald.config.read import config_from

    plans = plans_of(config_from(options.config))
    print((records_out if options.action == "out" else records_in)(plans, options.file))
    return 0


def _docs(options: argparse.Namespace) -> int:
    from hald.config.document import document, json_schema
    from hald.files import write_text

    schema = yaml.safe_dump(json_schema(), sort_keys=False, width=120, allow_unicode=True)
    stale = []
    for path, text in ((Path("workflow/schemas/config.schema.yaml"), schema), (Path("config/README.md"), document())):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
            if not options.check:
                write_text(path, text)
    if options.check and stale:
        raise UserError(f"out of date: {', '.join(stale)}; run `make docs`")
    print(f"written: {', '.join(stale)}" if stale else "config schema and document are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
