"""Shelves: where a step of all lays its observations a second time, for the caller to keep.

To make a large batch the caller's own, somebody has to copy it. The caller alone would fetch all of
it from the caches of other cores, while they wait; so each worker copies its part, which it has
just written, onto a *shelf* in shared memory, and the caller hands that out as it is. A shelf is
used again when nobody holds anything of it any more, which the count of references says.

    worker k   rows of a slot ──► its part of the shelf ──► done
    caller                                                  shelf ──► hands it out

With 64 frames of 84 x 84 x 4 and 15 workers that takes 40 us of the 250 us that a step took.
Where pages are asked for (`pool.make_pages`), so many shelves lie one after another and are one
array, [pages, num_envs, ...]: a rollout that is written where it is read.
"""

from __future__ import annotations

import math
import os
import sys
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from shoal.engine.rows import Rows
from shoal.layout import Array, Layout

AT_HAND = 3
"""Shelves of a caller that takes a step at a time: what it has, had before, and is to get."""
_WORTH_BYTES = 64 * 1024
"""From which size of a batch on; below it the caller's copy takes less than telling it apart."""
_forks_worker = False
"""Whether the process that is about to be forked is a worker, which holds nothing."""


def is_worth_it(layout: Layout, num_envs: int, without: Sequence[np.dtype[Any]] = ()) -> bool:
    """Whether observations are large enough, and all in rows; leaves `without` do not count."""
    leaves = [leaf for leaf in layout.arrays if leaf.dtype not in without]
    num_bytes = sum(leaf.dtype.itemsize * math.prod(leaf.shape) for leaf in leaves)
    has_empty = any(0 in leaf.shape for leaf in layout.arrays)
    return not (layout.has_objects or has_empty) and num_envs * num_bytes >= _WORTH_BYTES


class Block:
    """Shelves that are handed out together, as one array for each leaf.

    Whatever is made of such an array, a slice or a tensor, refers to its root (NumPy makes a view
    of a view one of the same base), and so the root's count says whether somebody holds any of it.
    """

    def __init__(self, rows: Rows, first: int, count: int) -> None:
        self.first = first
        parts = [leaf[first : first + count] for leaf in rows.shelves]
        self._shapes = [part.shape for part in parts]
        self._roots = [_root(part) for part in parts]
        self._unheld = self._held()
        self._is_retired = False

    def _held(self) -> list[int]:
        return [sys.getrefcount(root) for root in self._roots]

    def is_free(self) -> bool:
        """Whether nobody holds anything of it, in this process or in a fork of it."""
        return not self._is_retired and self._held() == self._unheld

    def retire(self) -> None:
        """A fork holds what is held now, and nobody will say when it does no longer."""
        self._is_retired = self._is_retired or not self.is_free()

    def arrays(self) -> list[Array]:
        """All of it, by leaf: [shelves, num_envs, ...]."""
        each = zip(self._roots, self._shapes, strict=True)
        return [root.reshape(shape) for root, shape in each]


def _root(part: Array) -> Array:
    return np.frombuffer(part.data.cast("B"), part.dtype)


class Shelves:
    """Who gets which shelf; `paged`: all of them are one block, and the caller says which."""

    def __init__(self, rows: Rows, *, paged: bool) -> None:
        count = rows.shape.shelves
        self._word, self.paged = rows.shelf_word, paged
        width = count if paged else 1
        self._blocks = [Block(rows, first, width) for first in range(0, count, width)]
        self._target: Block | None = None
        _living.add(self)

    def aim(self, page: int | None) -> None:
        """The step that begins now lays its observations on a free shelf, or on this page."""
        self.clear()
        if self.paged != (page is not None):
            return
        if page is not None:
            self._target, self._word[0] = self._blocks[0], 1 + page
            return
        for block in self._blocks:
            if block.is_free():
                self._target, self._word[0] = block, 1 + block.first
                return

    def clear(self) -> None:
        """The step that begins now lays nothing anywhere."""
        self._target, self._word[0] = None, 0

    def laid(self) -> list[Array] | None:
        """What the step has laid there, by leaf; from here on nothing is laid there any more."""
        shelf, self._word[0] = self._word[0] - 1, 0
        target, self._target = self._target, None
        if target is None:
            return None
        return [array[shelf - target.first] for array in target.arrays()]

    def pages(self) -> list[Array] | None:
        """All pages, by leaf, [pages, num_envs, ...]; None while somebody still holds any."""
        if not self.paged or not self._blocks[0].is_free():
            return None
        return self._blocks[0].arrays()

    def retire(self) -> None:
        """This process forks."""
        for block in self._blocks:
            block.retire()


_living: weakref.WeakSet[Shelves] = weakref.WeakSet()


def _before_fork() -> None:
    for shelves in [] if _forks_worker else list(_living):
        shelves.retire()


@contextmanager
def forking_worker() -> Iterator[None]:
    """While this process forks a worker."""
    global _forks_worker
    _forks_worker = True
    try:
        yield
    finally:
        _forks_worker = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
