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
    """Starts workers, and closes them: ask all, wait, insist."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._pid = backend, os.getpid()
        self.timeout_s = CLOSE_TIMEOUT_S

    def start(self, assignments: Sequence[Assignment]) -> Sequence[Worker]:
        return self._backend.start(assignments)

    def close(self) -> None:
        if os.getpid() != self._pid:
            return  # a fork of the caller: the workers are not its own
        deadline = time.monotonic() + self.timeout_s
        interruption: BaseException | None = None
        for worker in self._backend.workers:
            worker.end()
        for worker in self._backend.workers:
            try:
                for failure in worker.close(deadline):
                    log.warning("env %s raised in close: %s", failure.env_ids, failure.trace)
            except BaseException as error:  # Ctrl-C: no more patience, but nobody is left behind
                interruption, deadline = error, time.monotonic()
        self._backend.close()
        if interruption is not None:
            raise interruption
