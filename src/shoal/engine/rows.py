"""Rows: every array of a pool, carved out of one block of memory, private or shared.

Row *i* of each array belongs to environment *i*; its worker writes it, the caller reads it (for
actions the other way round). Who may touch a row when is decided by the signals, never by locks.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shoal.engine.memory import Memory
from shoal.layout import Array, Layout

CACHE_LINE_BYTES = 64
INFO_COLUMNS = 128
"""How many info entries get a column; further ones travel beside the rows."""
INFO_BYTES_PER_ENV = 1024
GENERATOR_BYTES = 48
_SET = b"\x01"
Part = Callable[[int, int], memoryview]
"""Gives a part of some memory, from a page's begin on: where it begins, and how many bytes."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """All that decides which arrays there are; equal shapes carve equal arrays."""

    num_envs: int
    slots: int
    observation: Layout
    action: Layout
    keeps_finals: bool
    blocks: int = 0
    """How many blocks of shelves there are beside the slots: see `shelves.py`."""
    shelves_per_block: int = 1

    def entries(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of every array, in the order `Rows` takes them."""
        batch, ring = (self.num_envs,), (self.slots, self.num_envs)
        f8, i8, flag = np.dtype(np.float64), np.dtype(np.int64), np.dtype(np.bool_)
        byte = np.dtype(np.uint8)
        observations = [((*ring, *leaf.shape), leaf.dtype) for leaf in self.observation.arrays]
        final_rows = batch if self.keeps_finals else (0,)
        finals = [((*final_rows, *leaf.shape), leaf.dtype) for leaf in self.observation.arrays]
        actions = [((*batch, *leaf.shape), leaf.dtype) for leaf in self.action.arrays]
        scalars = [(ring, f8), ((self.slots, 2, self.num_envs), flag), ((2, self.num_envs), byte)]
        records = [(batch, i8), ((self.num_envs, GENERATOR_BYTES), byte)]
        infos = [
            ((INFO_COLUMNS, self.num_envs), flag),
            ((self.num_envs * INFO_BYTES_PER_ENV,), byte),
        ]
        return observations + finals + actions + scalars + records + infos + [((1,), i8)]

    def block_entries(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """The same of a block of shelves: observations."""
        batch = (self.shelves_per_block, self.num_envs)
        return [((*batch, *leaf.shape), leaf.dtype) for leaf in self.observation.arrays]

    def own_bytes(self) -> int:
        """Bytes of all but the shelves, in whole pages."""
        return _in_pages(self.entries())

    def block_bytes(self) -> int:
        """Bytes of a block of shelves, in whole pages."""
        return _in_pages(self.block_entries())

    def nbytes(self) -> int:
        """Bytes that `Rows` needs."""
        return self.own_bytes() + self.blocks * self.block_bytes()


class Room(NamedTuple):
    """Where a block of shelves lies."""

    arrays: list[Array]
    """Observations by leaf, [shelves, num_envs, ...]."""
    memory: memoryview | None
    """What they lie in, where it is shared."""


class Rows:
    """The arrays of a pool, carved from shared memory or (None) from private memory.

    What a step comes to is written into one of the *slots*, in turn, so that what was known before
    a step outlives a step that dies. Each block of shelves is memory of its own, for the caller may
    keep it for longer than the rows.
    """

    memory: Memory | None = None
    """What others need in order to see these rows, where they are shared."""

    def __init__(self, shape: RowShape, part: Part | None = None) -> None:
        self.shape, self._part = shape, part
        buffer = None if part is None else part(0, shape.own_bytes())
        carved = iter(carve(shape.entries(), buffer))
        leaves, num_actions = len(shape.observation.arrays), len(shape.action.arrays)
        self.rings = [next(carved) for _ in range(leaves)]
        """Observations, [slots, num_envs, ...]."""
        self.observations = [[array[slot] for array in self.rings] for slot in range(shape.slots)]
        self.finals = [next(carved) for _ in range(leaves)]
        """The last observation of an ended episode, where the same step already resets."""
        self.actions = [next(carved) for _ in range(num_actions)]
        self.rewards, flags = next(carved), next(carved)
        self.terminations, self.truncations = flags[:, 0], flags[:, 1]
        self._flags = [flags[slot] for slot in range(shape.slots)]
        self.flag_bytes = [one.view(np.uint8).reshape(-1).data for one in self._flags]
        """By slot, the terminations and then the truncations, to be set one at a time."""
        self.asked = next(carved)
        """Two lists of whom a step of only some is for: 1 + the slot of its results, else 0."""
        self.asked_bytes = [one.data for one in self.asked]
        self.step_ns = next(carved)
        """How long the latest sent step of each environment took."""
        self.generators = next(carved)
        """The state of each environment's generator before its latest reset."""
        self.info_present, self.info_bytes = next(carved), next(carved)
        self.shelf_word = next(carved).data
        """1 + the shelf on which a step of all lays its observations, too; 0: on none."""
        self.shelves: list[list[Array]] = [[]] * (shape.blocks * shape.shelves_per_block)
        """Observations by leaf, [num_envs, ...], of each shelf."""
        self.rooms = list(map(self._room, range(shape.blocks)))

    def _room(self, block: int) -> Room:
        shape, memory = self.shape, None
        nbytes, width = shape.block_bytes(), shape.shelves_per_block
        if self._part is not None:
            memory = self._part(shape.own_bytes() + block * nbytes, nbytes)
        arrays = carve(shape.block_entries(), memory)
        self.shelves[block * width : (block + 1) * width] = [
            [array[k] for array in arrays] for k in range(width)
        ]
        return Room(arrays, memory)

    def reopen(self, block: int) -> Room:
        """Map a block of shelves once more, and leave the room that it had to whoever is in it."""
        self.rooms[block] = room = self._room(block)
        return room

    def any_ended(self, slot: int) -> bool:
        """Whether any episode has ended in the step whose results are there."""
        return _SET in self._flags[slot].tobytes()  # a fifth of the time of NumPy's any

    def ended(self, slots: Any, env_ids: Sequence[int] | None) -> list[int]:
        """Those of these environments (None: of all, in one slot) whose episodes have ended."""
        if env_ids is not None:
            flags = self.terminations[slots, env_ids] | self.truncations[slots, env_ids]
            return np.asarray(env_ids)[flags].tolist()  # type: ignore[no-any-return]
        # Ends are few: looking for their bytes takes a third of the time of NumPy's nonzero.
        both, found = self._flags[slots].tobytes(), set()
        at = both.find(_SET)
        while at >= 0:
            found.add(at % self.shape.num_envs)
            at = both.find(_SET, at + 1)
        return sorted(found)

    def take_over(self, other: Rows, count: int) -> None:
        """Copy the first rows of others (infos aside), whose number differs."""
        for mine, theirs in zip(self._ringed(), other._ringed(), strict=True):
            mine[:, :count] = theirs[:, :count]
        for mine, theirs in zip(self._single(), other._single(), strict=True):
            mine[:count] = theirs[:count]

    def _ringed(self) -> list[Array]:
        return [*self.rings, self.rewards, self.terminations, self.truncations]

    def _single(self) -> list[Array]:
        return [*self.finals, *self.actions, self.generators]


def carve(
    entries: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], buffer: memoryview | None
) -> list[Array]:
    """Zeroed arrays, one after another, each on a cache line of its own."""
    if buffer is None:
        buffer = _aligned(sum(_padded(*entry) for entry in entries))
    arrays, offset = [], 0
    for shape, dtype in entries:
        count = int(np.prod(shape, dtype=np.int64))
        flat = np.frombuffer(buffer, dtype, count, offset) if count else np.empty(0, dtype)
        arrays.append(flat.reshape(shape))
        offset += _padded(shape, dtype)
    return arrays


def _aligned(nbytes: int) -> memoryview:
    """Private memory that begins on a cache line."""
    block = np.zeros(nbytes + CACHE_LINE_BYTES, dtype=np.uint8)
    start = -block.ctypes.data % CACHE_LINE_BYTES
    return block[start : start + nbytes].data


def _in_pages(entries: Sequence[tuple[tuple[int, ...], np.dtype[Any]]]) -> int:
    nbytes = sum(_padded(*entry) for entry in entries)
    return math.ceil(nbytes / mmap.PAGESIZE) * mmap.PAGESIZE


def _padded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return -(-nbytes // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
