"""Serial: the caller is the only worker. The oracle for all others, and best for tiny worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.engine.backends import Terms
from shoal.engine.backends.local import build_here as _build
from shoal.engine.backends.local import own
from shoal.engine.build import describe
from shoal.engine.commands import Assignment, Built, Command, Failure, Reply
from shoal.engine.rows import Rows, RowShape
from shoal.engine.worker import Share, execute


class SerialWorker:
    """Executes a command where it is put."""

    pid: int | None = None

    def __init__(self, assignment: Assignment, terms: Terms) -> None:
        self._assignment, self._terms = assignment, terms
        self._share: Share | None = None
        self._reply: Reply | None = None

    def built(self) -> Built:
        # Exception only: Ctrl-C in the middle of a step is the user's, not the environment's.
        self._share = _build(self._assignment, Exception)
        return describe(self._share)

    def attach(self, rows: Rows) -> None:
        assert self._share is not None
        self._share.attach(rows, self._terms.autoreset, self._terms.check_finite)

    def put(self, command: Command) -> None:
        assert self._share is not None
        self._reply = execute(command, self._share)

    def wait(self, timeout_s: float | None = None) -> bool:
        return True

    def take(self) -> Reply | None:
        reply, self._reply = self._reply, None
        return own(reply) if reply is not None else None

    def busy_ns(self) -> int:
        return self._share.busy_ns if self._share else 0

    def local_envs(self) -> list[Any]:
        return [cell.env for cell in self._share.cells] if self._share else []

    def end(self) -> None:
        pass

    def close(self, deadline: float) -> list[Failure]:
        share, self._share = self._share, None
        return share.close() if share else []


class SerialBackend:
    """One process, one environment after another."""

    name = "serial"

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.workers: list[SerialWorker] = []

    def start(self, assignments: Sequence[Assignment]) -> list[SerialWorker]:
        self.workers = [SerialWorker(assignment, self._terms) for assignment in assignments]
        return self.workers

    def make_rows(self, shape: RowShape) -> Rows:
        rows = Rows(shape)
        for worker in self.workers:
            worker.attach(rows)
        return rows

    def listen(self, timeout_s: float, look: Callable[[], bool]) -> None:
        pass

    def close(self) -> None:
        pass
