"""Shared memory for signals, apart from the rows: where those of all workers lie, in blocks."""

from __future__ import annotations

from shoal.engine.signals import SEMAPHORE_BYTES

WORDS = 16
OP, SLOT, HAS_REPLY, BUSY_NS, RESIDENT_KB, ASKED, ANSWERED = range(4, 11)
"""Words of a worker; the first ones are its mark.

ASKED and ANSWERED count commands, and these numbers say what there is to do; a semaphore only wakes
whoever waits. A signal that goes with an interrupted wait, or comes twice, changes nothing.
"""
STEP_ALL, STEP_SOME, MESSAGE, END = range(4)
"""What the word OP says: the kinds of command."""
LISTENING = 0
"""Common word: whether the caller waits for any worker."""
_BLOCK_BYTES = 2 * SEMAPHORE_BYTES + 8 * WORDS


class Header:
    """The bell, then blocks of two semaphores and words, one for each worker."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.capacity = (len(view) - SEMAPHORE_BYTES * 2) // _BLOCK_BYTES
        """How many workers find room."""

    @staticmethod
    def nbytes(num_workers: int) -> int:
        return SEMAPHORE_BYTES * 2 + num_workers * _BLOCK_BYTES

    def clear(self, block: int) -> None:
        """Make a block as if there had never been a worker."""
        at = SEMAPHORE_BYTES * 2 + block * _BLOCK_BYTES
        self._view[at : at + _BLOCK_BYTES] = bytes(_BLOCK_BYTES)

    def place(self, block: int, index: int) -> memoryview:
        at = SEMAPHORE_BYTES * 2 + block * _BLOCK_BYTES + index * SEMAPHORE_BYTES
        return self._view[at : at + SEMAPHORE_BYTES]

    def words(self, block: int) -> memoryview:
        at = SEMAPHORE_BYTES * 2 + block * _BLOCK_BYTES + 2 * SEMAPHORE_BYTES
        return self._view[at : at + 8 * WORDS].cast("q")

    @property
    def bell(self) -> memoryview:
        return self._view[:SEMAPHORE_BYTES]

    @property
    def common(self) -> memoryview:
        return self._view[SEMAPHORE_BYTES : 2 * SEMAPHORE_BYTES].cast("q")
