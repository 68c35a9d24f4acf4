"""Files that are whole or not there: written beside, made durable, then renamed.

While a file is written it is locked, so that `sweep` can tell what a killed process has left from
what another one is writing. Windows has no such lock, but does not remove an open file either.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

_UNFINISHED = ".unfinished"
_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def write(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Put a file in its place, which nobody ever sees half-written.

    Its mode is as the umask says. OSError leaves what was there before, and nothing else.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        with _claim(beside) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            _set_mode(file, 0o600)
            file.writelines(pieces)
            file.flush()
            _set_mode(file, mode)
            os.fsync(file.fileno())
            if _fcntl is None:  # Windows renames no open file
                file.close()
            os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(path.parent)


def part_of(path: Path) -> Path:
    """Where another program writes what will bear this name: hidden beside it, the ending kept.

    Who has it written renames it, or removes it.
    """
    return path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")


def sweep(folder: str | os.PathLike[str]) -> list[Path]:
    """Remove what killed writers have left unfinished in a folder, and say what that was."""
    return [path for path in Path(folder).glob(f".*{_UNFINISHED}") if _is_removed(path)]


def _claim(path: Path) -> BinaryIO:
    """A new file, locked as long as it is open where the file system can do that."""
    while True:
        file = path.open("xb")
        if _fcntl is None:
            return file
        with contextlib.suppress(OSError):
            _fcntl.flock(file, _fcntl.LOCK_EX)
        if path.exists():  # not swept away before it was locked
            return file
        file.close()


def _is_removed(path: Path) -> bool:
    try:
        if _fcntl is None:
            path.unlink()
            return True
        with path.open("r+b") as file:
            _fcntl.flock(file, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
            path.unlink()
            return True
    except OSError:  # being written, or gone
        return False


def _set_mode(file: BinaryIO, mode: int) -> None:
    if _fcntl is not None:
        with contextlib.suppress(OSError):  # not all file systems have modes
            os.chmod(file.fileno(), mode)


def _sync_folder(folder: Path) -> None:
    """So that the new name outlasts a power cut."""
    if _fcntl is None:
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # some file systems cannot
            raise
    finally:
        os.close(fd)
