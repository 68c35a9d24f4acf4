"""The state of an environment's `np_random`, as it is recorded before each of its resets.

Automatic resets draw on from the environment's own generator, so the state is what an episode
starts from. NumPy's default generator (PCG64) fits into a row of shared memory, where it outlives
the worker; any other kind travels as an object.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_PCG64, _OTHER = b"\x01", b"\x02"
_KIND = 40  # after two numbers of 16 bytes and two of 4


def note(holder: Any, row: memoryview) -> Any:
    """Write the state of `holder.np_random` into a row; what does not fit is returned instead."""
    try:
        state = holder.np_random.bit_generator.state
    except AttributeError:  # it has none, or one of NumPy's old kind
        return forget(row)
    if state["bit_generator"] != "PCG64":
        row[_KIND : _KIND + 1] = _OTHER
        return state
    inner = state["state"]
    row[:16] = inner["state"].to_bytes(16, "little")
    row[16:32] = inner["inc"].to_bytes(16, "little")
    row[32:36] = state["has_uint32"].to_bytes(4, "little")
    row[36:40] = state["uinteger"].to_bytes(4, "little")
    row[_KIND : _KIND + 1] = _PCG64
    return None


def forget(row: memoryview) -> None:
    """A reset with a seed makes the generator anew: what was before it does not matter."""
    row[_KIND : _KIND + 1] = b"\x00"


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
