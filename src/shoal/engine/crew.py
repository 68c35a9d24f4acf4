"""The workers of a pool and their backend, closable when the pool itself is already gone."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import time
import weakref
from collections.abc import Sequence

from shoal.engine.backends import CLOSE_TIMEOUT_S, Backend, Worker
from shoal.engine.commands import Build

log = logging.getLogger("shoal")

EXIT_TIMEOUT_S = 1.0
"""How long to wait when the program itself is ending."""
_MOST_INTERRUPTIONS = 5

_open: weakref.WeakSet[Crew] = weakref.WeakSet()


def _hurry() -> None:
    """The program ends: whoever is closed from here on is given less time."""
    for crew in _open:
        crew.timeout_s = EXIT_TIMEOUT_S


@functools.cache
def _hurry_at_exit() -> None:
    atexit.register(_hurry)


class Crew:
    """Launches workers, and closes them: ask all, wait, insist."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._pid = backend, os.getpid()
        self._workers: list[Worker] = []
        self.timeout_s = CLOSE_TIMEOUT_S
        self.is_closed = False

    @property
    def loses_workers(self) -> bool:
        """Whether a worker can be lost, and replaced."""
        return self._backend.loses_workers

    def launch(self, builds: Sequence[Build]) -> list[Worker]:
        """One worker per command, each at its command already."""
        _open.add(self)
        _hurry_at_exit()  # after the pool's finalizer, so that it runs before that
        before = len(self._workers)
        self._backend.launch(builds, self._workers.append)
        return self._workers[before:]

    def dismiss(self, worker: Worker, timeout_s: float = 0.0) -> None:
        """Close one worker, which has died or is not needed any more."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        if timeout_s:
            worker.end()
        _close(worker, time.monotonic() + timeout_s)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the caller: the workers are not its own
        deadline = time.monotonic() + self.timeout_s
        interruptions: list[BaseException] = []
        while len(interruptions) < _MOST_INTERRUPTIONS:
            try:
                self._see_off(deadline)
                break
            except BaseException as error:  # Ctrl-C: no more patience, but nobody is left behind
                interruptions.append(error)
                deadline = time.monotonic()
        if interruptions:
            raise interruptions[0]

    def _see_off(self, deadline: float) -> None:
        """Close everyone who is left."""
        for worker in self._workers:
            worker.end()
        while self._workers:
            _close(self._workers[0], deadline)
            del self._workers[0]
        self._backend.close()
        self.is_closed = True


def _close(worker: Worker, deadline: float) -> None:
    for failure in worker.close(deadline):
        log.warning("env %s raised in close: %s", failure.env_ids, failure.trace)
