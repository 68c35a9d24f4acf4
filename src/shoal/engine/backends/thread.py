"""Threads: workers in this process, for environments that let go of the interpreter lock.

Every wait is a plain lock used as a binary semaphore: commands and answers strictly alternate.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from shoal.engine.backends import Terms
from shoal.engine.backends.local import build_here as _build
from shoal.engine.backends.local import own
from shoal.engine.build import describe
from shoal.engine.commands import Assignment, Built, Command, Failure, Reply
from shoal.engine.rows import Rows, RowShape
from shoal.engine.worker import Share, serve
from shoal.errors import WorkerDied, WorkerTimeout


class _Signal:
    """A flag that one thread raises and another waits for, once each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.set = self._lock.release

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s)


class ThreadWorker:
    """A thread with its share; the channel of its serve loop is this object too."""

    pid: int | None = None

    def __init__(self, assignment: Assignment, terms: Terms, bell: threading.Event) -> None:
        self._assignment, self._terms, self._bell = assignment, terms, bell
        self._go, self._done, self._ready = _Signal(), _Signal(), _Signal()
        self._share: Share | None = None
        self._error: BaseException | None = None
        self._command: Command | None = None
        self._reply: Reply | None = None
        self._failures: list[Failure] = []
        name = f"shoal-worker-{assignment.worker}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._share = _build(self._assignment, BaseException)
        except BaseException as error:
            self._error = error
        self._ready.set()
        if self._share is not None:
            self._serve(self._share)

    def _serve(self, share: Share) -> None:
        try:
            serve(self, share)
        except BaseException as error:
            # Nothing an environment does gets here; but should anything, nobody waits in vain.
            self._error = error
            self._done.set()
            self._bell.set()
        self._failures = share.close()

    def get(self) -> Command | None:
        self._go.wait()
        return self._command

    def answer(self, reply: Reply | None) -> None:
        self._reply = reply
        self._done.set()
        self._bell.set()

    def built(self) -> Built:
        if not self._ready.wait(self._terms.start_timeout_s):
            raise WorkerTimeout(
                f"worker {self._assignment.worker} has not built its environments within "
                f"{self._terms.start_timeout_s} s. Raise start_timeout_s if they need longer.",
                worker=self._assignment.worker,
                phase="construct",
            )
        if self._error is not None:
            raise self._error
        assert self._share is not None
        return describe(self._share)

    def attach(self, rows: Rows) -> None:
        assert self._share is not None
        self._share.attach(rows, self._terms.autoreset, self._terms.check_finite)

    def put(self, command: Command) -> None:
        self._command = command
        self._go.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        if self._error is None and not self._done.wait(timeout_s):
            return False
        if self._error is not None:
            raise WorkerDied(
                f"the thread of worker {self._assignment.worker} ended: {self._error!r}.",
                worker=self._assignment.worker,
                env_ids=self._assignment.block(),
                phase="step",
            ) from self._error
        return True

    def take(self) -> Reply | None:
        reply, self._reply = self._reply, None
        return own(reply) if reply is not None else None

    def busy_ns(self) -> int:
        return self._share.busy_ns if self._share else 0

    def local_envs(self) -> list[Any]:
        return [cell.env for cell in self._share.cells] if self._share else []

    def end(self) -> None:
        self._command = None
        with contextlib.suppress(RuntimeError):  # raised if it has not yet taken the last command
            self._go.set()

    def close(self, deadline: float) -> list[Failure]:
        """Wait for the thread; one that hangs in its environment cannot be forced and is left."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        self._share = None
        return self._failures


class ThreadBackend:
    """Worker threads of this process."""

    name = "thread"

    def __init__(self, terms: Terms) -> None:
        self._terms, self._bell = terms, threading.Event()
        self.workers: list[ThreadWorker] = []

    def start(self, assignments: Sequence[Assignment]) -> list[ThreadWorker]:
        self.workers = [ThreadWorker(one, self._terms, self._bell) for one in assignments]
        return self.workers

    def make_rows(self, shape: RowShape) -> Rows:
        rows = Rows(shape)
        for worker in self.workers:
            worker.attach(rows)
        return rows

    def listen(self, timeout_s: float, look: Callable[[], bool]) -> None:
        self._bell.wait(timeout_s)
        self._bell.clear()

    def close(self) -> None:
        pass
