"""Named values in a Game Boy's memory, and how they become numbers for a network."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import getitem

import numpy as np
import numpy.typing as npt

from shoal.errors import ConfigError

MOST_BYTES = 3
MOST = {"scale": 0xFFFF, "one_hot": 256, "bits": 8}
"""The largest size of each kind: all values are written down beforehand."""
JOINED_GAP = 16
"""Spans of addresses this close are read at once: a call costs as much as so many bytes."""

Vector = npt.NDArray[np.float32]
Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """One value. `kind` and `size` say how it is put into observations:

    - `scale`: one number, value / size, at most 1
    - `one_hot`: `size` numbers, of which number `value` is 1; none is where there is no such number
    - `bits`: `size` numbers, the lowest bit first
    - `hide`: not at all; it can still make events, and be asked for
    """

    name: str
    address: int
    kind: str = "hide"
    size: int = 0
    num_bytes: int = 1
    """Of a number, low byte first."""
    bcd: bool = False
    """Whether each half of a byte is a decimal digit."""
    length: int = 1
    """How many numbers; more than one can only be asked for."""
    meaning: str = ""

    @property
    def span(self) -> tuple[int, int]:
        return self.address, self.address + self.num_bytes * self.length

    @property
    def width(self) -> int:
        """How many numbers of an observation are this field's."""
        return {"hide": 0, "scale": 1}.get(self.kind, self.size)

    def value(self, content: Sequence[int]) -> int:
        """The number that these bytes are."""
        if not self.bcd:
            return sum(byte << 8 * at for at, byte in enumerate(content))
        return sum((10 * (byte >> 4) + (byte & 15)) * 100**at for at, byte in enumerate(content))

    def rows(self) -> list[Row]:
        """For each value what observations hold; values beyond the last are like the last."""
        if self.kind == "scale":
            return [(value / self.size,) for value in range(self.size + 1)]
        if self.kind == "one_hot":
            return [
                tuple(float(value == at) for at in range(self.size))
                for value in range(self.size + 1)
            ]
        values = range(256 if self.kind == "bits" else 1)
        return [tuple(float(value >> at & 1) for at in range(self.size)) for value in values]


class Reader:
    """Reads all fields that are one number, at once."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = tuple(field for field in fields if field.length == 1)
        self.index = {field.name: at for at, field in enumerate(self.fields)}
        self.spans = _join(field.span for field in self.fields)
        # Where each field begins in what is read; a plain byte is its own value, others say it.
        self._plans = [
            (_find(self.spans, field.address), None if _is_byte(field) else field)
            for field in self.fields
        ]

    def values(self, content: Sequence[int]) -> tuple[int, ...]:
        """The value of each field, from the bytes of `spans`."""
        return tuple(
            [
                content[at] if field is None else field.value(content[at : at + field.num_bytes])
                for at, field in self._plans
            ]
        )


class Encoder:
    """From values to the vector of an observation, in the order of the fields."""

    def __init__(self, fields: Sequence[Field]) -> None:
        shown = [(at, field.rows()) for at, field in enumerate(fields) if field.width]
        self._positions = [at for at, _ in shown]
        # As bytes: to join them takes a fifth of the time of making an array from numbers.
        self._tables = [[np.array(row, np.float32).tobytes() for row in rows] for _, rows in shown]
        self._last = [len(rows) - 1 for rows in self._tables]
        self.width = sum(field.width for field in fields)
        self.names = tuple(chain.from_iterable(map(_names, fields)))

    def __call__(self, values: Sequence[int]) -> Vector:
        chosen = map(min, [values[at] for at in self._positions], self._last)
        return np.frombuffer(b"".join(map(getitem, self._tables, chosen)), np.float32).copy()


def check_field(field: Field, where: str) -> Field:
    """The field, if it can be; else ConfigError."""
    if not 1 <= field.num_bytes <= MOST_BYTES:
        raise ConfigError(f"{where}: bytes is {field.num_bytes}; expected 1 to {MOST_BYTES}.")
    if field.length < 1:
        raise ConfigError(f"{where}: length is {field.length}; expected 1 or more.")
    begin, end = field.span
    if not 0 <= begin < end <= 0x10000:
        raise ConfigError(
            f"{where}: address is ${begin:X}; expected $0000 to ${0x10000 - (end - begin):X}."
        )
    if field.kind != "hide" and field.length > 1:
        raise ConfigError(f"{where}: several numbers (length {field.length}) cannot be observed.")
    if field.kind != "hide" and not 1 <= field.size <= MOST[field.kind]:
        raise ConfigError(
            f"{where}: {field.kind} is {field.size}; expected 1 to {MOST[field.kind]}."
        )
    return field


def _names(field: Field) -> list[str]:
    if field.width <= 1:
        return [field.name] * field.width
    return [f"{field.name}[{at}]" for at in range(field.width)]


def _is_byte(field: Field) -> bool:
    return field.num_bytes == 1 and not field.bcd


def _join(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin - joined[-1][1] <= JOINED_GAP:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


def _find(spans: Sequence[tuple[int, int]], address: int) -> int:
    """How many bytes of the spans come before this one."""
    before = 0
    for begin, end in spans:
        if begin <= address < end:
            return before + address - begin
        before += end - begin
    raise ValueError(f"${address:04X} is in none of the spans")
