"""Hybrid: worker processes, and the caller steps a share itself while they step theirs.

Every core is at work and nobody waits for a core, which is the fastest way for environments that
are cheap. The caller's own share (worker 0) is serial, and as little isolated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.engine.backends import Terms
from shoal.engine.backends.process import ProcessBackend
from shoal.engine.backends.serial import SerialWorker
from shoal.engine.commands import Build
from shoal.engine.rows import Rows, RowShape

_OWN = 0
"""The number of the worker that the caller is."""


class HybridBackend:
    """The process backend, with one worker in line."""

    name = "hybrid"
    loses_workers = True

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._processes = ProcessBackend(terms, num_own=1)
        self.start_method = self._processes.start_method

    def launch(self, builds: Sequence[Build], started: Callable[[Any], None]) -> None:
        own = [build for build in builds if build.assignment.worker == _OWN]
        others = [build for build in builds if build.assignment.worker != _OWN]
        workers = [SerialWorker(self._terms) for _ in own]
        for worker in workers:
            started(worker)
        if others:
            self._processes.launch(others, started)
        for worker, build in zip(workers, own, strict=True):
            worker.put(build)  # while the others build theirs

    def make_rows(self, shape: RowShape) -> Rows:
        return self._processes.make_rows(shape)

    def done(self) -> int:
        return self._processes.done()

    def listen(self, timeout_s: float, wanted: int) -> None:
        self._processes.listen(timeout_s, wanted)

    def close(self) -> None:
        self._processes.close()
