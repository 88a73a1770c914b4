"""What every cell of the experiments computes: plans in plain words, and the differences between two of them.

    python tests/planned_cells.py                  # how today's plan differs from the stored one
    python tests/planned_cells.py --write FILE     # store today's plan

The stored plan (tests/fixtures/plan.json.xz) is what the project meant before its plan was rebuilt. Keys, paths and
code digests are not in it: only values. A piece of work is a node `{"node": "teacher", "recipe.lr": 0.1, ...}`; where
it is made from another one, the field holds that node's id, a digest of all that is behind it.
"""

import argparse
import hashlib
import json
import lzma
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STORED = ROOT / "tests/fixtures/plan.json.xz"
EXPERIMENTS = ("demo", "paper")  # and all of:
STUDY = "studies/cpu/experiments"
# Where data lie and whether they may be fetched is no part of what is computed.
ELSEWHERE = {"dataset": ("root", "download")}

Node = dict[str, Any]


@dataclass
class Planned:
    """Nodes by id, and what is shown by name: cells of tables, analyses, figures, amounts of work."""

    nodes: dict[str, Node] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)

    def add(self, kind: str, fields: Mapping[str, Any]) -> str:
        """Keep a node; its id."""
        kept = {name: value for name, value in fields.items() if name not in ELSEWHERE.get(kind, ())}
        node = {"node": kind} | dict(flat(kept))
        digest = hashlib.sha256(json.dumps(node, sort_keys=True).encode()).hexdigest()[:12]
        self.nodes[f"@{digest}"] = node
        return f"@{digest}"


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings and lists as one mapping from dotted paths to plain values."""
    items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    items = list(items)
    if not items:
        yield path, value
    for name, item in items:
        yield from flat(item, f"{path}.{name}" if path else str(name))


# ---- today's plan, read with today's modules -----------------------------------------------------------------------


def planned(root: Path) -> Planned:
    """All cells of the experiments of a project, as the package plans them."""
    names = sorted(f"{STUDY}/{path.stem}" for path in (root / STUDY).glob("*.yaml"))
    found = Planned()
    before, os.environ["HALD_DATA"] = os.environ.get("HALD_DATA"), "/data"
    try:
        for name in (*EXPERIMENTS, *names):
            _Reader(found, name, root).read()
    finally:
        os.environ.pop("HALD_DATA")
        os.environ |= {"HALD_DATA": before} if before is not None else {}
    return found


class _Reader:
    """One experiment's plan as nodes. What it knows of the package is all here."""

    def __init__(self, found: Planned, name: str, root: Path) -> None:
        from hald.pipeline import make_plan

        self.found, self.name = found, name
        self.plan = make_plan({"experiments": [name]}, root)
        self.kinds = {
            "dataset": self.plan.datasets,
            "teacher": self.plan.teachers,
            "ranking": self.plan.rankings,
            "statistics": self.plan.statistics,
            "units": self.plan.units,
            "images": self.plan.images,
            "labels": self.plan.labels,
            "training": self.plan.runs,
            "analysis": self.plan.analyses,
        }
        self.ids: dict[str, str] = {}

    def read(self) -> None:
        """Add everything that the experiment shows."""
        plan, shown = self.plan, self.found.shown
        for table in plan.tables.values():
            shown[f"{self.name}: table {table.id}"] = self._plain(
                {name: getattr(table, name) for name in ("caption", "rows", "columns", "seeds", "number")}
            )
            for cell in table.cells:
                shown[f"{self.name}: {self._cell(table.id, cell)}"] = self._of_cell(table, cell)
        for key in plan.analyses:
            shown[f"{self.name}: analysis {plan.slugs[key].rsplit('_', 1)[0]}"] = {"made from": self._id(key)}
        for figure in plan.figures.values():
            cells = [self._cell(figure.table.id, cell) for cell in figure.table.cells] if figure.table else []
            shown[f"{self.name}: figure {figure.id}"] = {
                "kind": figure.kind,
                "caption": figure.caption,
                "cells": "; ".join(cells),
            } | {f"analysis {i}": self._id(key) for i, key in enumerate(figure.analyses)}
        counted = {"relabel": "views", "evaluate": "seeds", "rank": "units", "recover": "units"}
        amounts: dict[str, dict[str, int]] = {"views": {}, "seeds": {}, "students kept": plan.kept, "units": {}}
        for (stage, key), number in plan.needed.items():
            if stage in counted:
                amounts[counted[stage]][key] = number
        for what, numbers in amounts.items():
            by_name = defaultdict(list)
            for key, number in numbers.items():
                by_name[plan.slugs[key].rsplit("_", 1)[0]].append(number)
            for name, each in by_name.items():
                shown[f"{self.name}: {what} of {name}"] = {"amount": str(sorted(each))}

    def _of_cell(self, table: Any, cell: Any) -> dict[str, Any]:
        place = {f"shows {name}": value for name, value in cell.place.items()}
        value = {"made from": self._id(cell.run), "seeds": table.seeds, "subject": cell.subject, "value": cell.value}
        return place | value | dict(flat({"paper": self._plain(vars(cell.paper) if cell.paper else None)}))

    @staticmethod
    def _cell(table: str, cell: Any) -> str:
        return f"{table} [{', '.join(cell.row)} | {', '.join(cell.column)}]"

    def _id(self, key: str) -> str:
        """The node of a key, read on first use."""
        if key not in self.ids:
            kind = next(kind for kind, specs in self.kinds.items() if key in specs)
            fields = self._plain(self.kinds[kind][key])
            if kind == "teacher":
                fields["floor"] = self.plan.floors[key]
            self.ids[key] = self.found.add(kind, fields)
        return self.ids[key]

    def _plain(self, value: Any) -> Any:
        """JSON values, with ids in place of keys."""
        from dataclasses import fields, is_dataclass

        if is_dataclass(value):
            return {part.name: self._plain(getattr(value, part.name)) for part in fields(value)}
        if isinstance(value, Mapping):
            return {str(name): self._plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(item) for item in value]
        return self._id(value) if isinstance(value, str) and value in self.plan.slugs else value


# ---- comparing -----------------------------------------------------------------------------------------------------


def read_stored(renamed: Mapping[str, str], moved: Mapping[str, str], file: Path = STORED) -> Planned:
    """The stored plan in today's names: `renamed` maps fields, `kind.old` to `new`, and `moved` experiments."""
    content = json.loads(lzma.decompress(file.read_bytes()))
    nodes = {}
    for name, node in content["nodes"].items():
        kind = node["node"]
        nodes[name] = {renamed.get(f"{kind}.{part}", part): value for part, value in node.items()}
    shown = {tuple(name.split(":", 1)): value for name, value in content["shown"].items()}
    return Planned(nodes, {f"{moved.get(name, name)}:{what}": value for (name, what), value in shown.items()})


def write_stored(plan: Planned, file: Path) -> None:
    """Store a plan."""
    text = json.dumps({"nodes": plan.nodes, "shown": plan.shown}, sort_keys=True, separators=(",", ":"))
    file.write_bytes(lzma.compress(text.encode(), preset=9))


def differences(old: Planned, new: Planned) -> list[str]:
    """In words: every value that is another one, and the cells that it is behind."""
    behind: dict[str, list[str]] = defaultdict(list)
    walk = _Walk(old, new)
    for name, was in old.shown.items():
        if name not in new.shown:
            behind["is gone"].append(name)
            continue
        for line in walk.shown(was, new.shown[name]):
            behind[line].append(name)
    behind["is new"] = [name for name in new.shown if name not in old.shown]
    return ["\n    ".join((line, *names)) for line, names in sorted(behind.items()) if names]


class _Walk:
    """Two plans side by side; each pair of nodes is compared once."""

    def __init__(self, old: Planned, new: Planned) -> None:
        self.old, self.new = old.nodes, new.nodes
        self.known: dict[tuple[str, str], list[str]] = {}

    def shown(self, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
        """Differences of two cells, and of all that is behind them."""
        return list(dict.fromkeys(self._fields("cell", was, now)))

    def _nodes(self, was: str, now: str) -> list[str]:
        pair = (was, now)
        if pair not in self.known:
            self.known[pair] = []
            kind = self.old[was]["node"]
            self.known[pair] = list(dict.fromkeys(self._fields(kind, self.old[was], self.new[now])))
        return self.known[pair]

    def _fields(self, kind: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
        for name in dict.fromkeys((*was, *now)):
            a, b = was.get(name, _Missing), now.get(name, _Missing)
            if self._is_node(a, self.old) and self._is_node(b, self.new):
                yield from self._nodes(a, b) if a != b or self.old[a] != self.new[b] else ()
            elif a != b or type(a) is not type(b):
                yield f"{kind}.{name} was {_said(a)}, is {_said(b)}"

    @staticmethod
    def _is_node(value: Any, nodes: Mapping[str, Node]) -> bool:
        return isinstance(value, str) and value in nodes


class _Missing:
    """In place of a field that is not there."""


def _said(value: Any) -> str:
    return "not there" if value is _Missing else repr(value)


def main() -> int:
    """Print the differences, or store today's plan."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="FILE", help="store today's plan there")
    options = parser.parse_args()
    now = planned(ROOT)
    if options.write:
        write_stored(now, options.write)
        print(f"{options.write}: {len(now.nodes)} pieces of work behind {len(now.shown)} cells and other things shown")
        return 0
    from test_planned_cells import MOVED, RENAMED

    found = differences(read_stored(RENAMED, MOVED), now)
    print("\n".join(found) or "every cell computes what it did")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
