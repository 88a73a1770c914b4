"""Files that are either whole or not there: temporary name, fsync, rename."""

import contextlib
import errno
import hashlib
import io
import json
import os
import platform
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from hald.errors import UserError

REFUSALS = {
    errno.ENOSPC: "the disk is full and nothing was kept; free some space and run again",
    errno.EDQUOT: "your disk quota is used up and nothing was kept; free some space and run again",
    errno.EACCES: "there is no permission to write there; give another place, or ask its owner",
    errno.EPERM: "there is no permission to write there; give another place, or ask its owner",
    errno.EROFS: "that file system is read-only; give another place",
    errno.ENOTDIR: "a part of that path is a file, not a folder; give another place",
    errno.EEXIST: "a part of that path is a file, not a folder; give another place",
    errno.ENAMETOOLONG: "that name is too long; give a shorter one",
}


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Say the file system's refusals in words: `what` could not be done, why, and what to do about it."""
    try:
        yield
    except (OSError, UserError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno in REFUSALS:
            raise UserError(f"{what}: {REFUSALS[cause.errno]}") from error
        raise


def aside(path: Path) -> Path:
    """A hidden name beside `path` for what is being made; host and process are in it, so that remains can be told."""
    return path.with_name(f".{path.name}~{platform.node()}~{os.getpid()}~{uuid.uuid4().hex[:8]}")


def fsync_dir(path: Path) -> None:
    """Make renames inside `path` survive a power cut."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


UNFINISHED = ".unfinished"  # ends the names of files that are being written


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then put it in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
    os.close(fd)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomic(path, write)


def write_json(path: Path, data: Any) -> None:
    """Write `data` as stable, readable JSON (sorted keys): the same content is the same bytes."""
    write_text(path, json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def write_buffered(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """`write_atomic` for libraries whose own writers do not say that a disk is full: they write to memory."""
    buffer = io.BytesIO()
    write(buffer)

    def copy(temporary: Path) -> None:
        temporary.write_bytes(buffer.getbuffer())

    write_atomic(path, copy)


def read_json(path: Path) -> Any:
    """Parse one JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(
            f"{path} is damaged ({error}); put it back from a copy, or remove it to have it made again"
        ) from error


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def array_digest(array: Any) -> str:
    """SHA-256 of a NumPy array's bytes in order, with its shape and type."""
    digest = hashlib.sha256(f"{array.shape}{array.dtype}".encode())
    for part in array:
        digest.update(part.tobytes())
    return digest.hexdigest()


def publish_dir(finished: Path, target: Path, complete: str) -> bool:
    """Move a finished directory to `target` in one rename; False if another writer was first.

    `complete` is the file without which a directory is not whole. Snakemake makes the parent directories of declared
    outputs before a job starts and deletes declared files when one fails, so `target` may hold empty folders or the
    remains of an earlier attempt: those give way.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in finished.rglob(f".*{UNFINISHED}"):  # by a writer that was killed
        left.unlink()
    _fsync_tree(finished)
    for _ in range(1000):
        if (target / complete).exists():
            return False
        try:
            finished.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            _make_way(target, complete)
        else:
            fsync_dir(target.parent)
            return True
    raise OSError(f"cannot move {finished} to {target}: something keeps recreating it")


def _make_way(target: Path, complete: str) -> None:
    """Remove an incomplete directory. Folders go by rmdir, which spares anything that another writer just put there."""
    for folder in sorted((entry for entry in target.rglob("*") if entry.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    with contextlib.suppress(OSError):
        target.rmdir()
    if (target / complete).exists() or not target.exists():
        return
    remains = aside(target)
    with contextlib.suppress(FileNotFoundError):
        target.rename(remains)  # of a failed attempt, which nobody else is writing
        shutil.rmtree(remains)


def _fsync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())


def link_tree(source: Path, target: Path) -> None:
    """Copy a directory of immutable files by hard links where the file system allows it, by bytes where not."""
    shutil.copytree(source, target, copy_function=link_file)


def link_file(source: str | Path, target: str | Path) -> None:
    """A hard link to an immutable file, or a copy where the file system or the owner does not allow one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def tree_bytes(path: Path) -> int:
    """Bytes of all files below `path`."""
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def size(count: float) -> str:
    """Bytes for people: 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


@contextlib.contextmanager
def filled(target: Path) -> Iterator[Path]:
    """A folder to fill, which is `target` when all went well; when not, nothing is left of it."""
    there = target.is_dir()
    if target.exists() and not there:
        raise UserError(f"{target} is a file; give a folder that does not exist yet")
    if there and any(target.iterdir()):
        raise UserError(f"{target} is not empty; give a folder that does not exist yet")
    folder = target if there else aside(target)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
        if not there:
            folder.rename(target)
    except BaseException:
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if not there:
            folder.rmdir()
        raise
