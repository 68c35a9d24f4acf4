"""The workers of a pool and their backend, closable when the pool itself is already gone."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from shoal.engine.backends import Backend, Worker
from shoal.engine.commands import Assignment

log = logging.getLogger("shoal")

CLOSE_TIMEOUT_S = 5.0


class Crew:
    """Starts workers, and closes them: ask, wait, insist."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._pid = backend, os.getpid()
        self._workers: Sequence[Worker] = ()
        self.timeout_s = CLOSE_TIMEOUT_S

    def start(self, assignments: Sequence[Assignment]) -> Sequence[Worker]:
        self._workers = self._backend.start(assignments)
        return self._workers

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the caller: the workers are not its own
        deadline = time.monotonic() + self.timeout_s
        try:
            for worker in self._workers:
                for failure in worker.close(deadline):
                    log.warning("env %s raised in close: %s", failure.env_ids, failure.trace)
        finally:
            self._backend.close()
