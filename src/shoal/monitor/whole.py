"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def part_of(path: Path) -> Path:
    """Where a file is written before it takes its name: hidden beside it, with the same ending."""
    return path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A place to write to, which takes the name of `path` if nothing went wrong."""
    part = part_of(path)
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
