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
from shoal.engine.backends.local import NothingAhead, own
from shoal.engine.commands import Build, Command, Failure, Place, Reply, Step, place_of
from shoal.engine.rows import Rows, RowShape
from shoal.engine.worker import Share, serve
from shoal.errors import WorkerDied

_MOMENT_S = 0.02
_ON_THE_WAY_S = 0.02
"""How long to wait for the signal of an answer that is there."""


class _Signal:
    """A flag that one thread raises and another waits for, once each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is raised already
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        return self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s)


class ThreadWorker(NothingAhead):
    """A thread with its share; the channel of its serve loop is this object too."""

    pid: int | None = None
    is_caller = False

    def __init__(self, number: int, terms: Terms, bell: threading.Event) -> None:
        self._number, self._bell = number, bell
        self._go, self._done = _Signal(), _Signal()
        self._share = Share(terms.manner())
        self._error: BaseException | None = None
        self._command: Command | None = None
        self._reply: Reply | None = None
        self._failures: list[Failure] = []
        self._num_asked = self._num_begun = self._num_answered = self._num_taken = 0
        """What there is to do or to take is said by these numbers, not by a signal: a signal goes
        with a wait that is interrupted just when it comes, or comes twice."""
        self._thread = threading.Thread(
            target=self._run, name=f"shoal-worker-{number}", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        try:
            serve(self, self._share)
        except BaseException as error:
            # Nothing an environment does gets here; but should anything, nobody waits in vain.
            self._error = error
            self._done.set()
            self._bell.set()
        self._failures = self._share.close()

    def get(self) -> Command | None:
        while self._num_begun == self._num_asked:
            self._go.wait()
        self._num_begun += 1
        return self._command

    def answer(self, reply: Reply | None) -> None:
        self._reply = reply
        self._share.rest()
        self._num_answered += 1
        self._done.set()
        self._bell.set()

    def prepare(self, command: Command) -> None:
        pass

    def put(self, command: Command) -> None:
        self._command = command
        self._num_asked += 1
        self._go.set()

    def break_off(self) -> bool:
        self._go.set()
        return self._num_asked != self._num_taken

    def has_answered(self) -> bool:
        return self._num_answered == self._num_asked or self._error is not None

    def wait(self, timeout_s: float | None = None) -> bool:
        if self._error is None and not self._await_answer(timeout_s):
            return False
        if self._error is not None:
            raise WorkerDied(
                f"the thread of worker {self._number} ended: {self._error!r}.",
                worker=self._number,
                env_ids=self._share.env_ids,
                phase=self.at().phase,
            ) from self._error
        return True

    def _await_answer(self, timeout_s: float | None) -> bool:
        if self._num_answered == self._num_asked:
            if self._num_taken != self._num_asked:
                self._done.wait(_ON_THE_WAY_S)
            return True
        while self._done.wait(timeout_s):
            if self._num_answered == self._num_asked or self._error is not None:
                return True
        return False

    def take(self) -> Reply | None:
        self._num_taken = self._num_asked
        return own(self._reply) if self._reply is not None else None

    def put_step(self, slot: int) -> None:
        self.put(Step(slot))

    def end_step(self) -> bool | None:
        if self._error is not None or not self._await_answer(_MOMENT_S):
            return None
        if self._reply is not None:
            self._done.set()  # for `wait`, to which it is left
            return None
        self._num_taken = self._num_asked
        return self._share.has_ended

    def at(self) -> Place:
        return place_of(self._share.mark)

    def busy_ns(self) -> int:
        return self._share.busy_ns

    def resident_mb(self) -> float:
        return 0.0

    def local_envs(self) -> list[Any]:
        return [cell.env for cell in self._share.cells]

    def end(self) -> None:
        self._command = None
        self._num_asked += 1
        self._go.set()

    def close(self, deadline: float) -> list[Failure]:
        """Wait for the thread; one that hangs in its environment cannot be forced and is left."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return self._failures


class ThreadBackend:
    """Worker threads of this process."""

    name = "thread"
    loses_workers = False
    start_method = None

    def __init__(self, terms: Terms) -> None:
        self._terms, self._bell = terms, threading.Event()

    def launch(self, builds: Sequence[Build], started: Callable[[ThreadWorker], None]) -> None:
        for build in builds:
            worker = ThreadWorker(build.assignment.worker, self._terms, self._bell)
            started(worker)
            worker.put(build)

    def make_rows(self, shape: RowShape) -> Rows:
        return Rows(shape)

    def done(self) -> int:
        return 0

    def listen(self, timeout_s: float, wanted: int) -> None:
        self._bell.wait(timeout_s)
        self._bell.clear()

    def close(self) -> None:
        pass
