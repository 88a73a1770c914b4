"""What exists on disk, asked folder by folder: a plan names thousands of files, and most are not there yet."""

import os


class Disk:
    """One look at a plan's results and stores. A folder is listed at most once, and only if its parent has it."""

    def __init__(self, *roots: str) -> None:
        self._roots = {os.path.normpath(root) for root in roots}
        self._names: dict[str, set[str]] = {}

    def has(self, file: str) -> bool:
        """Whether a file or folder was there when its folder was first asked about."""
        folder, name = os.path.split(file)
        return name in self.names(folder)

    def names(self, folder: str) -> set[str]:
        """Everything in a folder; nothing if there is no such folder."""
        found = self._names.get(folder)
        if found is None:
            found = self._names[folder] = self._listed(folder)
        return found

    def add(self, file: str) -> None:
        """Note a file that was made since."""
        folder, name = os.path.split(file)
        self.names(folder).add(name)

    def _listed(self, folder: str) -> set[str]:
        parent = os.path.dirname(folder)
        if os.path.normpath(folder) not in self._roots and parent not in ("", folder) and not self.has(folder):
            return set()
        try:
            return set(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return set()
