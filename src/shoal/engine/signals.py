"""Signals between processes: semaphores, and waiting that spins for a while and then parks.

A semaphore is both message and memory barrier: what was written before `release` is seen after
`acquire`, on every processor. On Linux it lies inside the pool's shared memory and has no name;
elsewhere it has one until the other side has opened it.
"""

from __future__ import annotations

import _multiprocessing  # type: ignore[import-not-found]
import contextlib
import ctypes
import math
import os
import secrets
import time
from collections.abc import Callable

SEMAPHORE_BYTES = 64
"""Room for a `sem_t` (32 bytes with glibc), on a cache line of its own."""

_COUNTING, _MAX = 1, 2**31 - 1
_LEAST_S = 20e-6
_HOPELESS_S = 200e-6
"""Where waits are as long as that, and longer than the longest spin, a short one gains nothing."""
_PATIENCE = 4
"""So many long waits in a row are usual; fewer are an accident."""


class Spin:
    """How long one side spins before it parks: `most_s` where waits are usually shorter than that.

    A process that is awake notices a signal within a microsecond, and whoever sends it needs no
    system call; one that sleeps needs 5 to 50 us, and milliseconds where the machine is a guest and
    its host is busy. Where waits are long, as while a learner is at work, nothing is burnt.

    One long wait changes nothing: if it did, a moment in which one process is kept from its core
    would send all others to sleep, whose waking makes the next waits long, too, and so on.

    Every `yield_s` it lets others have its core. Where nobody wants it that costs nothing. Where
    another program is at work, too, whoever spins keeps no worker from its core: with 4 of 16 cores
    taken, CartPoles are stepped 2 to 5 times as fast.
    """

    def __init__(self, most_s: float, yield_s: float = 50e-6) -> None:
        self.most_s = self.now_s = most_s
        self._yield_s = yield_s
        self._num_long = 0

    def until(self, has_come: Callable[[], bool], begun: float, most_s: float = math.inf) -> bool:
        """Look again and again, for as long as is sensible."""
        end, polite = begun + min(self.now_s, most_s), begun + self._yield_s
        while (now := time.perf_counter()) < end:
            if has_come():
                self._num_long = 0
                return True
            if now > polite:
                os.sched_yield()
                polite = now + self._yield_s
        return False

    def learn(self, wait_s: float) -> None:
        """A wait that was longer than the spin has taken so long."""
        self._num_long = self._num_long + 1 if wait_s > self.most_s else 0
        if self._num_long < _PATIENCE:
            self.now_s = self.most_s
        else:
            self.now_s = min(self.most_s, _LEAST_S) if wait_s < _HOPELESS_S else 0.0


class Semaphore:
    """A counting semaphore that two processes share."""

    def __init__(
        self,
        lock: _multiprocessing.SemLock,
        name: str | None = None,
        place: memoryview | None = None,
    ) -> None:
        self.name = name
        self._place = place  # the memory it lies in must outlive it
        self.release: Callable[[], None] = lock.release
        self.acquire: Callable[..., bool] = lock.acquire

    @classmethod
    def create(cls, place: memoryview | None) -> Semaphore:
        """A new one, at zero, inside `place`; with a name where `place` is None."""
        if place is None:
            name = f"/shoal-{os.getpid()}-{secrets.token_hex(6)}"
            return cls(_multiprocessing.SemLock(_COUNTING, 0, _MAX, name, False), name)
        if ctypes.CDLL(None, use_errno=True).sem_init(ctypes.c_void_p(_address(place)), 1, 0):
            raise OSError(ctypes.get_errno(), "sem_init failed")
        return cls.open(place)

    @classmethod
    def open(cls, place: memoryview | str) -> Semaphore:
        """One that another process made, by its place in shared memory or its name."""
        if isinstance(place, str):
            return cls(_multiprocessing.SemLock._rebuild(0, _COUNTING, _MAX, place), place)
        # Rebuilt from the bare address: the standard library's own semaphore, at its full speed
        # (75 ns for a failed try, a third of what calling through ctypes costs), but nameless.
        lock = _multiprocessing.SemLock._rebuild(_address(place), _COUNTING, _MAX, None)
        return cls(lock, place=place)

    def unlink(self) -> None:
        """Take the name away, unless the other side has; those who have opened it keep it."""
        if self.name is not None:
            with contextlib.suppress(FileNotFoundError):
                _multiprocessing.sem_unlink(self.name)
            self.name = None

    def _try_four_times(self) -> bool:
        acquire = self.acquire
        return acquire(False) or acquire(False) or acquire(False) or acquire(False)

    def wait(self, spin: Spin, park_s: float) -> bool:
        """Acquire: try in a loop for as long as `spin` says, then sleep for at most `park_s`."""
        acquire = self.acquire
        if acquire(False):
            return True
        if not spin.most_s:
            return acquire(True, park_s) if park_s > 0.0 else False
        begun = time.perf_counter()
        if spin.until(self._try_four_times, begun):
            return True
        if park_s <= 0.0:
            return False
        has_come = acquire(True, park_s)
        spin.learn(time.perf_counter() - begun)
        return has_come


def _address(place: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(place))
