"""Serial: the caller is the only worker. The oracle for all others, and best for tiny worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.engine.backends import Terms
from shoal.engine.backends.local import NothingAhead, own
from shoal.engine.commands import Build, Command, Failure, Place, Reply, Step, place_of
from shoal.engine.rows import Rows, RowShape
from shoal.engine.worker import Share, execute


class SerialWorker(NothingAhead):
    """Executes a command where it is put."""

    pid: int | None = None
    is_caller = True

    def __init__(self, terms: Terms) -> None:
        # Exception only: Ctrl-C in the middle of a step is the user's, not the environment's.
        self._share = Share(terms.manner(catch=Exception))
        self._reply: Reply | None = None
        self._steps = (Step(0), Step(1))

    def prepare(self, command: Command) -> None:
        pass

    def put(self, command: Command) -> None:
        self._reply = execute(command, self._share)
        self._share.rest()

    def break_off(self) -> bool:
        return False

    def has_answered(self) -> bool:
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        return True

    def take(self) -> Reply | None:
        return own(self._reply) if self._reply is not None else None

    def put_step(self, slot: int) -> None:
        self._reply = execute(self._steps[slot], self._share)
        self._share.rest()

    def end_step(self) -> bool | None:
        return self._share.has_ended if self._reply is None else None

    def at(self) -> Place:
        return place_of(self._share.mark)

    def busy_ns(self) -> int:
        return self._share.busy_ns

    def resident_mb(self) -> float:
        return 0.0

    def local_envs(self) -> list[Any]:
        return [cell.env for cell in self._share.cells]

    def end(self) -> None:
        pass

    def close(self, deadline: float) -> list[Failure]:
        return self._share.close()


class SerialBackend:
    """One process, one environment after another."""

    name = "serial"
    loses_workers = False
    start_method = None

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def launch(self, builds: Sequence[Build], started: Callable[[SerialWorker], None]) -> None:
        for build in builds:
            worker = SerialWorker(self._terms)
            started(worker)
            worker.put(build)

    def make_rows(self, shape: RowShape) -> Rows:
        return Rows(shape)

    def done(self) -> int:
        return 0

    def listen(self, timeout_s: float, wanted: int) -> None:
        pass

    def close(self) -> None:
        pass
