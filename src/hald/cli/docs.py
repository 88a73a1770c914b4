"""`hald docs`: the config schema and config/README.md, written from the source."""

import argparse
from pathlib import Path
from typing import Any

import yaml

from hald.config.document import document, json_schema
from hald.errors import UserError
from hald.files import write_text


def add_parser(commands: Any) -> None:
    """Add `hald docs` to the command line."""
    docs = commands.add_parser("docs", help="write the config schema and config/README.md from the source")
    docs.add_argument("--check", action="store_true", help="only compare; exit 1 when they are out of date")
    docs.set_defaults(run=_docs)


def _docs(options: argparse.Namespace) -> int:
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
