"""What exists on disk, asked folder by folder: a plan names thousands of files, and most are not there yet."""

import os
from pathlib import Path

from hald.plan.model import Plan


class Present:
    """One look at a plan's results and stores. A folder is listed at most once, and only if its parent has it."""

    def __init__(self, plan: Plan) -> None:
        self._roots = {Path(plan.results), Path(plan.stores)}
        self._names: dict[Path, frozenset[str]] = {}

    def has(self, path: Path) -> bool:
        """Whether a file or folder below results or stores was there when its folder was first asked about."""
        return path.name in self.names(path.parent)

    def names(self, folder: Path) -> frozenset[str]:
        """Everything in a folder below results or stores; nothing if there is no such folder."""
        if folder not in self._names:
            self._names[folder] = self._listed(folder)
        return self._names[folder]

    def _listed(self, folder: Path) -> frozenset[str]:
        if folder not in self._roots and folder != folder.parent and not self.has(folder):
            return frozenset()
        try:
            return frozenset(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
