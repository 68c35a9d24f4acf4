"""The state of an environment's `np_random`, as it is recorded before each of its resets.

Automatic resets draw on from the environment's own generator, so the state is what an episode
starts from. NumPy's default generator (PCG64) fits into a row of shared memory, where it outlives
the worker; any other kind travels as an object.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

_PCG64, _OTHER = b"\x01", b"\x02"
_KIND = 40  # after two numbers of 16 bytes and two of 4


_GYMNASIUMS = gymnasium.Env.np_random


def _np_random(holder: Any) -> Any:
    return getattr(holder, "np_random", None)


class Recorder:
    """Writes the state of one environment's generator into its row, once an episode.

    Asking NumPy for the state takes 1.8 us with what has to be done to its numbers, 2 % of the time
    of CartPole's short episodes. So it is copied from where it lies (0.3 us): whether that is what
    it seems to be is checked for every generator that is met, against what NumPy says.
    """

    def __init__(self, holder: Any, row: memoryview) -> None:
        self._holder, self._row = holder, row
        self._numbers, self._rest = row[:32], row[32:_KIND]
        self._read: Callable[[Any], Any] = _np_random
        if getattr(type(holder), "np_random", None) is _GYMNASIUMS:
            self._read = operator.attrgetter("_np_random")  # what the property does, and no call
        self._generator: Any = None
        self._raw: tuple[memoryview, memoryview] | None = None

    def note(self) -> Any:
        """Write the state; what does not fit into the row is returned instead."""
        generator = self._read(self._holder)
        if generator is not self._generator:
            self._generator, self._raw = generator, _raw_state(generator)
        if self._raw is None:
            return note(self._holder, self._row)
        self._numbers[:], self._rest[:] = self._raw
        self._row[_KIND] = _PCG64[0]
        return None

    def forget(self) -> None:
        """A reset with a seed makes the generator anew: what was before it does not matter."""
        self._row[_KIND : _KIND + 1] = b"\x00"


def _raw_state(generator: Any) -> tuple[memoryview, memoryview] | None:
    """Where the numbers of a PCG64 lie, in the order of a row; None if that is not certain."""
    if type(getattr(generator, "bit_generator", None)) is not np.random.PCG64:
        return None
    # A pointer to state and increment (16 bytes each), then has_uint32 and uinteger (4 each).
    head = (ctypes.c_ubyte * 16).from_address(generator.bit_generator.ctypes.state_address)
    pointer = int.from_bytes(bytes(head[:8]), sys.byteorder)
    body = (ctypes.c_ubyte * 32).from_address(pointer)
    raw = memoryview(body).cast("B"), memoryview(head).cast("B")[8:]
    found = state_of(b"".join(raw) + _PCG64, None)
    return raw if found == generator.bit_generator.state else None


def note(holder: Any, row: memoryview) -> Any:
    """Write the state of `holder.np_random` into a row; what does not fit is returned instead."""
    try:
        state = holder.np_random.bit_generator.state
    except AttributeError:  # it has none, or one of NumPy's old kind
        state = None
    return write(state, row)


def write(state: Any, row: memoryview) -> Any:
    """Write a state, or that there is none, into a row; what does not fit is returned instead."""
    if state is None or state["bit_generator"] != "PCG64":
        row[_KIND : _KIND + 1] = b"\x00" if state is None else _OTHER
        return state
    inner = state["state"]
    row[:16] = inner["state"].to_bytes(16, "little")
    row[16:32] = inner["inc"].to_bytes(16, "little")
    row[32:36] = state["has_uint32"].to_bytes(4, "little")
    row[36:40] = state["uinteger"].to_bytes(4, "little")
    row[_KIND : _KIND + 1] = _PCG64
    return None


def state_of(row: bytes | bytearray, other: Any) -> Any:
    """The state that was noted, be it in the row or beside it; None if none was."""
    kind = row[_KIND : _KIND + 1]
    if kind != _PCG64:
        return other if kind == _OTHER else None
    number = int.from_bytes
    return {
        "bit_generator": "PCG64",
        "state": {"state": number(row[:16], "little"), "inc": number(row[16:32], "little")},
        "has_uint32": number(row[32:36], "little"),
        "uinteger": number(row[36:40], "little"),
    }


def take(holder: Any) -> Any:
    """The state of `holder.np_random` now; None if it has none."""
    row = bytearray(_KIND + 8)
    return state_of(row, note(holder, memoryview(row)))


def put_back(holder: Any, state: Any, seed: int | None) -> None:
    """Give an environment a generator in this state."""
    if state is None:
        return
    kind = getattr(np.random, state["bit_generator"])
    bits = kind(0)
    bits.state = state
    holder.np_random = np.random.Generator(bits)
    if seed is not None and hasattr(holder, "_np_random_seed"):
        holder._np_random_seed = seed
