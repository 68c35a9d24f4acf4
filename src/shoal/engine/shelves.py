"""Shelves: where a step of all lays its observations a second time, for the caller to keep.

To make a large batch the caller's own, somebody has to copy it. The caller alone would fetch all of
it from the caches of other cores, while they wait; so each worker copies its part, which it has
just written, onto a *shelf* in shared memory, and the caller hands that out as it is. A shelf is
used again when nobody holds anything of it any more, which the count of references says.

    worker k   rows of a slot ──► its part of the shelf ──► done
    caller                                                  shelf ──► hands it out

With 64 frames of 84 x 84 x 4 and 15 workers that takes 40 us of the 250 us that a step took. Where
single observations are large, each is laid as soon as it is written, by a single worker as well.
Where pages are asked for (`pool.make_pages`), so many shelves lie one after another and are one
array, [pages, num_envs, ...]: a rollout that is written where it is read.

When this process forks, what is held of a shelf becomes private memory, as all else that is the
caller's, and the shelf is mapped anew. Pages cannot move, for a GPU may read them: those that are
held stay, are given to no worker any more, and are private in the fork.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from shoal.engine.memory import make_private
from shoal.engine.rows import Room, Rows
from shoal.layout import Array, Layout, Leaf

AT_HAND = 3
"""Shelves of a caller that takes a step at a time: what it has, had before, and is to get."""
_WORTH_BYTES = 64 * 1024
"""From which size of a batch on; below it the caller's copy takes less than telling it apart."""
_SINGLY_BYTES, _CACHED_BYTES = 64 * 1024, 1024 * 1024
"""The size of one observation, and of those of a worker, from which on each is laid by itself."""
_forks_worker = False
"""Whether the process that is about to be forked is a worker, which uses no rollout."""


def is_worth_it(layout: Layout, num_envs: int, without: Sequence[np.dtype[Any]] = ()) -> bool:
    """Whether observations are large enough, and all in rows; leaves `without` do not count."""
    leaves = [leaf for leaf in layout.arrays if leaf.dtype not in without]
    has_empty = any(0 in leaf.shape for leaf in layout.arrays)
    return not (layout.has_objects or has_empty) and num_envs * _num_bytes(leaves) >= _WORTH_BYTES


def is_worth_it_singly(layout: Layout, num_envs: int) -> bool:
    """Whether a worker with so many environments lays each observation as soon as it is written.

    It is in the core's cache then; when all have been written, the first of them are not any more.
    """
    num_bytes = _num_bytes(layout.arrays)
    return num_bytes >= _SINGLY_BYTES and num_envs * num_bytes >= _CACHED_BYTES


def _num_bytes(leaves: Iterable[Leaf]) -> int:
    return sum(leaf.dtype.itemsize * math.prod(leaf.shape) for leaf in leaves)


class Block:
    """Shelves that are handed out together, as one array for each leaf.

    Whatever is made of such an array, a slice or a tensor, refers to its root (NumPy makes a view
    of a view one of the same base), and so the root's count says whether somebody holds any of it.
    """

    def __init__(self, room: Room) -> None:
        self.memory = room.memory
        self._shapes = [array.shape for array in room.arrays]
        self._roots = list(map(_root, room.arrays))
        self._unheld = self._held()
        self.is_gone = False
        """Whether it is the caller's for good."""

    def _held(self) -> list[int]:
        return [sys.getrefcount(root) for root in self._roots]

    def is_free(self) -> bool:
        """Whether nobody holds anything of it."""
        return not self.is_gone and self._held() == self._unheld

    def arrays(self) -> list[Array]:
        """All of it, by leaf: [shelves, num_envs, ...]."""
        each = zip(self._roots, self._shapes, strict=True)
        return [root.reshape(shape) for root, shape in each]


def _root(part: Array) -> Array:
    return np.frombuffer(part.data.cast("B"), part.dtype)


class Shelves:
    """Who gets which shelf; `paged`: all of them are one block, and the caller says which."""

    def __init__(self, rows: Rows, *, paged: bool) -> None:
        self._rows, self._word, self.paged = rows, rows.shelf_word, paged
        self._blocks = list(map(Block, rows.rooms))
        self._target: int | None = None
        """The block on which the step under way lays."""
        self.is_retired = False
        """Whether a fork has the pages, too, which so are no worker's any more."""
        _living.add(self)

    @property
    def num_pages(self) -> int:
        """How many pages may still be written to."""
        return len(self._rows.shelves) if self.paged and not self.is_retired else 0

    def aim(self, page: int | None) -> None:
        """The step that begins now lays its observations on a free shelf, or on this page."""
        self.clear()
        if self.paged != (page is not None):
            return
        if page is not None:
            if not self.is_retired:
                self._target, self._word[0] = 0, 1 + page
            return
        for number, block in enumerate(self._blocks):
            if block.is_free():
                self._target, self._word[0] = number, 1 + number
                return

    def clear(self) -> None:
        """The step that begins now lays nothing anywhere."""
        self._target, self._word[0] = None, 0

    def laid(self) -> list[Array] | None:
        """What the step has laid there, by leaf; from here on nothing is laid there any more."""
        shelf, target = self._word[0] - 1, self._target
        self.clear()
        if target is None:
            return None
        return [array[shelf if self.paged else 0] for array in self._blocks[target].arrays()]

    def pages(self) -> list[Array] | None:
        """All pages, by leaf, [pages, num_envs, ...]; None while somebody still holds any."""
        if not self.paged or self.is_retired or not self._blocks[0].is_free():
            return None
        return self._blocks[0].arrays()

    def part(self) -> None:
        """This process is about to fork: what is held becomes its own, or no worker's."""
        for number, block in enumerate(self._blocks):
            if (
                block.is_gone or block.is_free() or block.memory is None
            ):  # a fork has private memory of its own
                continue
            if self.paged:
                self.is_retired = self.is_retired or not _forks_worker
                continue
            make_private(block.memory)
            block.is_gone = True
            with contextlib.suppress(OSError):  # the pool is closed, say
                self._blocks[number] = Block(self._rows.reopen(number))

    def part_in_fork(self) -> None:
        """This process is a fork, in which what was mapped of pages is still shared."""
        block = self._blocks[0]
        if self.paged and block.memory is not None and not block.is_free():
            make_private(block.memory)


_living: weakref.WeakSet[Shelves] = weakref.WeakSet()


def _before_fork() -> None:
    for shelves in list(_living):
        shelves.part()


def _after_fork() -> None:
    for shelves in [] if _forks_worker else list(_living):
        shelves.part_in_fork()


@contextlib.contextmanager
def forking_worker() -> Iterator[None]:
    """While this process forks a worker."""
    global _forks_worker
    _forks_worker = True
    try:
        yield
    finally:
        _forks_worker = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
