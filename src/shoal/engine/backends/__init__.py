"""Backends: where workers run and how commands reach them. Nothing else differs between them.

A backend starts workers and makes the rows; a worker here is the caller's end of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gymnasium.vector import AutoresetMode

from shoal.engine.commands import Assignment, Built, Command, Failure, Reply
from shoal.engine.rows import Rows, RowShape


@dataclass(frozen=True, slots=True)
class Terms:
    """What every worker of a pool must know."""

    autoreset: AutoresetMode
    check_finite: bool = False
    start_timeout_s: float = 120.0
    step_timeout_s: float | None = None
    start_method: str | None = None
    preload: tuple[str, ...] = ()


class Worker(Protocol):
    """The caller's end of a worker. Between `put` and `take` it is busy; one command at a time."""

    pid: int | None

    def built(self) -> Built:
        """Wait until its environments are made; raises what a constructor raised."""

    def put(self, command: Command) -> None:
        """Hand over a command and return."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it has answered, waiting at most so long; raises where it never will."""

    def take(self) -> Reply | None:
        """The answer, once `wait` said there is one."""

    def busy_ns(self) -> int:
        """How long it has been executing commands, in all."""

    def local_envs(self) -> list[Any]:
        """The environments themselves, where they can be reached from here."""

    def end(self) -> None:
        """Ask it to run every `env.close()` and end, without waiting for that."""

    def close(self, deadline: float) -> list[Failure]:
        """Wait until it has ended, and end it by force after `deadline` (time.monotonic)."""


class Backend(Protocol):
    """Where workers run."""

    name: str

    @property
    def workers(self) -> Sequence[Worker]:
        """Those that were started, be it that the start as a whole has failed."""

    def start(self, assignments: Sequence[Assignment]) -> Sequence[Worker]:
        """Start one worker per assignment; they build their environments side by side."""

    def make_rows(self, shape: RowShape) -> Rows:
        """Rows that the caller and all workers see; workers take commands from here on."""

    def listen(self, timeout_s: float, look: Callable[[], bool]) -> None:
        """Return when some worker has answered, or after so long.

        `look` tells whether one has already; it is asked once workers know that they are to ring.
        """

    def close(self) -> None:
        """Let go of everything that does not belong to a single worker."""
