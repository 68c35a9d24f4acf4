"""`metrics.jsonl`: one JSON object a line, from which curves and reports are made.

    {"step": 2048, "run/episodes": 97.0, "episode/return_mean": 20.9, "train/entropy": null, ...}

A number that JSON does not have (NaN, infinity) is null. A line counts once its end is written, so
a run that is killed at any moment leaves rows that can be read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError, shown
from shoal.monitor import whole
from shoal.monitor.sink import Metrics

Row = dict[str, float]
"""Metrics by name, and "step"; null has become NaN."""

TAIL_BYTES = 1 << 16
"""Where the end of the last whole line is looked for: more than any line has."""


class JsonLines:
    """A sink that appends to a file; folder and file are made with the first row."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._file: FileIO | None = None

    def __str__(self) -> str:
        return str(self._path)

    def write(self, step: int, metrics: Metrics) -> None:
        line = _encode(step, metrics)
        try:
            if self._file is None:
                self._file = _open(self._path)
            while line:  # a file that has no room left takes a part first, and then complains
                line = line[self._file.write(line) :]
        except BaseException:
            self.close()  # and what is torn now is cut off by whoever opens it again
            raise

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def rows(path: str | Path) -> Iterator[Row]:
    """The rows of a file, one by one; a torn last line is skipped."""
    for _, row in _pairs(Path(path)):
        yield row


def read(path: str | Path) -> list[Row]:
    """All rows of a file; a torn last line is skipped."""
    return list(rows(path))


def truncate_after(path: str | Path, step: int) -> None:
    """Drop the rows beyond a step, which a resumed run will write again; all or none of them.

    Nobody may have the file open for writing. Where there is none, nothing happens.
    """
    path = Path(path)
    if not path.exists():
        return
    whole.write(path, (line for line, row in _pairs(path) if row["step"] <= step))


def _encode(step: int, metrics: Metrics) -> bytes:
    row: dict[str, float | None] = {"step": int(step)}
    for name, value in metrics.items():
        number = float(value)
        row[name] = number if math.isfinite(number) else None
    return json.dumps(row, allow_nan=False).encode() + b"\n"


def _decode(line: bytes) -> Row:
    row: dict[str, Any] = json.loads(line)
    return {name: math.nan if value is None else value for name, value in row.items()}


def _pairs(path: Path) -> Iterator[tuple[bytes, Row]]:
    """Each whole line with its row."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = _decode(line)
                row["step"]
            except (ValueError, AttributeError, KeyError) as problem:
                raise ConfigError(
                    f"{path}, line {number} is no row of metrics: {shown(line)}. Remove that line."
                ) from problem
            yield line, row


def _open(path: Path) -> FileIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "a+b", buffering=0)  # noqa: SIM115  (it stays open)
    try:
        _cut_torn_end(file)
    except BaseException:
        file.close()
        raise
    return file


def _cut_torn_end(file: FileIO) -> None:
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return
    start = file.seek(max(0, size - TAIL_BYTES))
    end = start + file.read(TAIL_BYTES).rfind(b"\n") + 1
    if end != size:
        file.truncate(end)
