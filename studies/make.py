"""Make a study's page and figures from its template (page.in.md), its experiments, its records and the paper's tables.

    python -m studies.make studies/cpu

It needs neither data nor results. What a template can say:
"""

import argparse
import dataclasses
import functools
import inspect
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from hald.cli.records import Line, asked, by_name, plans_of, read_lines
from hald.config.read import read_yaml
from hald.errors import UserError
from hald.files import write_json, write_text
from hald.plain import to_dict
from hald.plan.model import Plan
from studies.words import Part, Words


def make_page(study: Path, root: Path = Path()) -> None:
    """Write page.md and figures/ of a study, a folder below the project's root."""
    experiments = sorted((root / study / "experiments").glob("*.yaml"))
    names = [path.relative_to(root).with_suffix("").as_posix() for path in experiments]
    if not (root / study / "records.jsonl").is_file():
        raise UserError(f"{study} has no records.jsonl; `hald records out` makes one")
    lines = read_lines(root / study / "records.jsonl")
    known = by_name(lines)
    with tempfile.TemporaryDirectory() as folder:
        plans = plans_of({"experiments": names}, root)
        parts = [_filled(name, plan, known, Path(folder, str(i))) for i, (name, plan) in enumerate(plans.items())]
        printed = read_yaml(root / "config/paper/tables.yaml")
        words = Words(parts, lines, printed, root / study / "figures").all()
        write_text(root / study / "page.md", render(root / study / "page.in.md", words))


def _filled(name: str, plan: Plan, known: dict[str, Line], results: Path) -> Part:
    """An experiment whose records lie where the pipeline would keep them, under today's keys."""
    plan = dataclasses.replace(plan, results=str(results))
    behind: dict[str, dict[int | None, Line]] = {}
    for title, one in asked(name, plan).items():
        if title in known and one.kind != "teacher":
            if one.kind == "student":
                _require_settings(one.place, known[title]["record"]["spec"], to_dict(plan.runs[one.key]))
            behind.setdefault(one.key, {})[one.seed] = known[title]
            write_json(one.file, known[title]["record"] | {"key": one.key})
    return Part(name, plan, {key: list(seeds.values()) for key, seeds in behind.items()})


def _require_settings(place: dict[str, Any], recorded: dict[str, Any], planned: dict[str, Any]) -> None:
    """Refuse records of other settings than the experiment's, as far as both name the same numbers."""
    for name in sorted(recorded.keys() & planned.keys()):
        values = recorded[name], planned[name]
        if all(type(value) in (int, float) for value in values) and values[0] != values[1]:
            where = ", ".join(map(str, place.values()))
            raise UserError(
                f"{where}: recorded with {name} {values[0]}, the experiment has {values[1]}; train it again and "
                f"`hald records out`, or put the experiment back"
            )


def render(template: Path, words: dict[str, Callable[..., str]]) -> str:
    """The template with its words filled in; errors name its line."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.globals = {name: _checked(word) for name, word in words.items()}
    text = template.read_text(encoding="utf-8")
    parts = text.split("}}")
    for number, part in enumerate(parts[:-1]):
        if "{{" not in part:
            line = "".join(parts[: number + 1]).count("\n") + 1
            raise UserError(f"{template}, line {line}: }}}} without {{{{ before it")
    try:
        return environment.from_string(text).render()
    except jinja2.TemplateSyntaxError as error:
        raise UserError(f"{template}, line {error.lineno}: {error.message}") from error
    except (UserError, jinja2.UndefinedError) as error:
        frames = traceback.extract_tb(error.__traceback__)
        (at,) = {frame.lineno for frame in frames if frame.filename == "<template>"}
        known = "" if isinstance(error, UserError) else f". Words are {', '.join(words)}; names stand in quotes"
        raise UserError(f"{template}, line {at}: {error}{known}") from error


def _checked(word: Callable[..., str]) -> Callable[..., str]:
    """A word that says how it is written when its arguments do not fit."""

    @functools.wraps(word)
    def checked(*arguments: Any, **fields: Any) -> str:
        try:
            inspect.signature(word).bind(*arguments, **fields)
        except TypeError as error:
            raise UserError(f"{error}; write {written(word)}") from error
        return word(*arguments, **fields)

    return checked


def written(word: Callable[..., str]) -> str:
    """A word with its arguments: {{ cell(table, row, column) }}."""
    names = (
        f"**{name}" if argument.kind is argument.VAR_KEYWORD else name
        for name, argument in inspect.signature(word).parameters.items()
    )
    return f"{{{{ {word.__name__}({', '.join(names)}) }}}}"


def main(arguments: list[str] | None = None) -> int:
    """Make a page; a message for people and exit code 1 when something is wrong."""
    words = (f"  {written(word)}\n      {inspect.getdoc(word)}" for word in Words([], [], {}, Path()).all().values())
    parser = argparse.ArgumentParser(
        prog="python -m studies.make",
        description=(__doc__ or "").strip() + "\n\n" + "\n".join(words),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("study", type=Path, help="its folder, e.g. studies/cpu")
    try:
        make_page(parser.parse_args(arguments).study)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
