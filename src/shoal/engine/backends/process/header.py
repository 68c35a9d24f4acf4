"""Shared memory for signals, apart from the rows: where those of all workers lie, in blocks."""

from __future__ import annotations

import numpy as np

from shoal.engine.signals import SEMAPHORE_BYTES

WORDS = 16
COMMAND, ANSWER, BUSY_NS, RESIDENT_KB, AHEAD, DONE = range(4, 10)
"""Words of a worker; the first ones are its mark.

COMMAND is written by the caller only: the number of the command, times 8, plus what it is. ANSWER
is written by the worker only: the number of the command that it has carried out, times 4, plus what
there is to say. These numbers tell what there is to do; a semaphore only wakes whoever waits. A
signal that goes with an interrupted wait, or comes twice, changes nothing.

AHEAD is like COMMAND: a step of some that is to follow the command under way. The worker begins it
by itself, unless it has a reply to that command: then it waits for COMMAND, and what was put ahead
can be taken back.

DONE grows by the environments that a quiet step of some has stepped, and by MUCH with any other
answer but to a step of all. What all workers have there is what the caller waits for, if it waits
for any of them: who brings it to what the caller wants rings, and nobody before.
"""
MUCH = 2**24
STEP_ALL, STEP_SOME, MESSAGE, END = 0, 2, 4, 6
"""What a command is: to the kinds of step `Step.slot` is added."""
HAS_ENDED, HAS_REPLY = 1, 2
"""What an answer says: in a step of all an episode has ended; a reply follows in the pipe."""
WANTED = 0
"""Common word: how much is to be done in all before a worker rings; 0: the caller does not wait."""
_BLOCK_BYTES = 2 * SEMAPHORE_BYTES + 8 * WORDS


def number_asked(words: memoryview) -> int:
    """The number of the latest command."""
    return int(words[COMMAND] >> 3)


def number_answered(words: memoryview) -> int:
    """The number of the latest command that was carried out."""
    return int(words[ANSWER] >> 2)


class Header:
    """The bell, then blocks of two semaphores and words, one for each worker."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.capacity = (len(view) - SEMAPHORE_BYTES * 2) // _BLOCK_BYTES
        """How many workers find room."""
        words = np.frombuffer(view[SEMAPHORE_BYTES * 2 :], dtype=np.int64)
        of_block = words[: self.capacity * _BLOCK_BYTES // 8].reshape(self.capacity, -1)
        self._done = of_block[:, 2 * SEMAPHORE_BYTES // 8 + DONE]

    @staticmethod
    def nbytes(num_workers: int) -> int:
        return SEMAPHORE_BYTES * 2 + num_workers * _BLOCK_BYTES

    def clear(self, block: int) -> None:
        """Make a block as if there had never been a worker; what was done is done, though."""
        at, done = SEMAPHORE_BYTES * 2 + block * _BLOCK_BYTES, self._done[block]
        self._view[at : at + _BLOCK_BYTES] = bytes(_BLOCK_BYTES)
        self._done[block] = done

    def place(self, block: int, index: int) -> memoryview:
        at = SEMAPHORE_BYTES * 2 + block * _BLOCK_BYTES + index * SEMAPHORE_BYTES
        return self._view[at : at + SEMAPHORE_BYTES]

    def words(self, block: int) -> memoryview:
        at = SEMAPHORE_BYTES * 2 + block * _BLOCK_BYTES + 2 * SEMAPHORE_BYTES
        return self._view[at : at + 8 * WORDS].cast("q")

    def done(self) -> int:
        """How much all workers have done."""
        return int(self._done.sum())

    @property
    def bell(self) -> memoryview:
        return self._view[:SEMAPHORE_BYTES]

    @property
    def common(self) -> memoryview:
        return self._view[SEMAPHORE_BYTES : 2 * SEMAPHORE_BYTES].cast("q")
