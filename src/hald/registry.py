"""Plug-ins by name: each is a module of its folder (`losses/kl.py`) or a folder with equal parts (`methods/rded`)."""

import functools
import importlib
import pkgutil
from types import ModuleType

from hald.errors import UserError


@functools.cache
def names(package: str) -> dict[str, bool]:
    """The plug-ins of a package in alphabetical order, and whether each is a folder."""
    folder = importlib.import_module(package).__path__
    return {found.name: found.ispkg for found in sorted(pkgutil.iter_modules(folder), key=lambda found: found.name)}


def plugins(package: str, half: str) -> dict[str, ModuleType]:
    """One half (`settings`, `plan`, `figure`) of every plug-in that has it; of one that is a module, the module."""
    found = {}
    for name, is_folder in names(package).items():
        module = f"{package}.{name}.{half}" if is_folder else f"{package}.{name}"
        if not is_folder or half in names(f"{package}.{name}"):
            found[name] = importlib.import_module(module)
    return found


def compute(package: str, name: str) -> ModuleType:
    """The half of a plug-in that does its work."""
    known = names(package)
    if name not in known:
        raise UserError(f"there is no '{name}' in {package}; there are {', '.join(known)}")
    return importlib.import_module(f"{package}.{name}.compute" if known[name] else f"{package}.{name}")
