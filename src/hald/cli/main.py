"""The `hald` command."""

import argparse
import sys

from hald.cli import bless, docs, images, jobs, labels, plan, records, runs, status
from hald.errors import UserError

COMMANDS = (plan, images, labels, runs, jobs, status, records, bless, docs)  # as help lists them


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
    parser = argparse.ArgumentParser(
        prog="hald",
        description="Dataset distillation: look at plans, results and stores of the workflow in this folder.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
