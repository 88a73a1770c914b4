"""Which module of this package builds a network: known without torch, because modules are read, not imported.

A network of our own, `small/<name>`, is in the module of `networks/small/` whose name its own begins with. That module
lists its networks in NAMES; with WIDTHS each also has a width, e.g. `small/resnet10-w16`.
"""

import ast
import difflib
import functools
import re
from pathlib import Path
from typing import NamedTuple

from hald.errors import UserError

FAMILIES = ("small", "sre2l", "torchvision", "timm")
SMALL = Path(__file__).parent / "small"
WIDTH = re.compile(r"-w\d+\Z")


class Listed(NamedTuple):
    """What a module of `networks/small/` says that it builds."""

    module: str
    names: tuple[str, ...]
    widths: bool

    def has(self, name: str) -> bool:
        """Whether it builds the network `small/<name>`."""
        plain = WIDTH.sub("", name) if self.widths else name
        return name.startswith(self.module) and (name in self.names or plain in self.names)


def module_of(arch: str) -> str:
    """The module whose `build` makes the network `arch` = `<family>/<name>`."""
    family, _, name = arch.partition("/")
    if family not in FAMILIES or not name:
        close = difflib.get_close_matches(family, FAMILIES, n=1) if name else []
        raise UserError(
            f"unknown network '{arch}': write <family>/<name> with a family of {', '.join(FAMILIES)}"
            f"{_meant(f'{close[0]}/{name}' if close else '')}"
        )
    if family != "small":
        return f"hald.networks.{family}"
    for one in small_networks():
        if one.has(name):
            return f"hald.networks.small.{one.module}"
    raise _unknown(name)


def _unknown(name: str) -> UserError:
    """What to write instead of `small/<name>`."""
    wide = [known for one in small_networks() if one.widths for known in one.names]
    fixed = [known for one in small_networks() if not one.widths for known in one.names]
    width = "".join(WIDTH.findall(name))
    close = difflib.get_close_matches(name, [*fixed, *(f"{known}{width}" for known in wide)], n=1)
    return UserError(
        f"unknown network 'small/{name}': known are {', '.join(wide)}, each also with a width, e.g. {wide[0]}-w16, and "
        f"{', '.join(fixed)}{_meant(f'small/{close[0]}' if close else '')}"
    )


def _meant(name: str) -> str:
    return f". Did you mean '{name}'?" if name else ""


@functools.cache
def small_networks() -> tuple[Listed, ...]:
    """All networks of our own, module by module."""
    found = []
    for path in sorted(SMALL.glob("*.py")):
        assigned = {
            ast.unparse(node.targets[0]): node.value
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Assign)
        }
        if "NAMES" in assigned:
            widths = "WIDTHS" in assigned and ast.literal_eval(assigned["WIDTHS"])
            found.append(Listed(path.stem, tuple(ast.literal_eval(assigned["NAMES"])), bool(widths)))
    return tuple(found)
