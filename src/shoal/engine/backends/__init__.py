"""Backends: where workers run and how commands reach them. Nothing else differs between them.

A backend launches workers and makes the rows; a worker here is the caller's end of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gymnasium.vector import AutoresetMode

from shoal.engine.commands import Build, Command, Failure, Place, Reply, Step
from shoal.engine.rows import Rows, RowShape
from shoal.engine.worker import Manner

CLOSE_TIMEOUT_S = 5.0
"""How long an environment, and a worker, may take to close."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What every worker of a pool must know."""

    autoreset: AutoresetMode
    check_finite: bool = False
    start_timeout_s: float = 120.0
    step_timeout_s: float | None = None
    start_method: str | None = None
    preload: tuple[str, ...] = ()
    watches_memory: bool = False

    def manner(self, catch: type[BaseException] = BaseException) -> Manner:
        """What a share must know of this."""
        return Manner(self.autoreset, self.check_finite, catch, self.step_timeout_s is not None)


class Worker(Protocol):
    """The caller's end of a worker. Between `put` and `take` it is busy; one command at a time."""

    pid: int | None
    is_caller: bool
    """Whether commands are carried out where they are put."""
    takes_ahead: bool
    """Whether a step can be handed over while another command is under way."""

    def prepare(self, command: Command) -> None:
        """Do what may be refused about a `put`, so that this is not refused any more."""

    def put(self, command: Command) -> None:
        """Hand over a command and return."""

    def break_off(self) -> bool:
        """A `put` was interrupted halfway: whether there is an answer, or a death, to wait for."""

    def put_ahead(self, command: Step) -> None:
        """Hand over a step of some that it begins by itself when the command under way is done.

        If it has a reply to that, it does not: then this can be called back.
        """

    def is_put_ahead(self) -> bool:
        """A `put_ahead` was interrupted: whether it was handed over, after all."""

    def go_on(self) -> None:
        """The command under way was taken, without a reply: what was put ahead is under way."""

    def call_back(self) -> None:
        """Take back what was put ahead, after a reply, or a death."""

    def has_answered(self) -> bool:
        """Whether there is an answer to the command under way; does not ask whether it lives."""

    def take_quietly(self) -> bool:
        """`wait` and `take` at no cost, if it has answered and there is no reply."""

    def is_idle(self) -> bool:
        """The same of whatever was put ahead."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it has answered, waiting at most so long; raises where it never will."""

    def take(self) -> Reply | None:
        """The answer, once `wait` said there is one; the same one until the next `put`."""

    def put_step(self, slot: int) -> None:
        """`put` a step of all its environments, to which there is nothing more to say."""

    def end_step(self) -> bool | None:
        """Whether an episode has ended in that step; waits for a moment.

        None where it is not done yet, or there is more to tell: then `wait` and `take` do.
        """

    def at(self) -> Place:
        """What it is at, or was when it ended."""

    def busy_ns(self) -> int:
        """How long it has been executing commands, in all."""

    def resident_mb(self) -> float:
        """Its memory, as far as it has told; 0 where it has none of its own."""

    def local_envs(self) -> list[Any]:
        """The environments themselves, where they can be reached from here."""

    def end(self) -> None:
        """Ask it to run every `env.close()` and end, without waiting for that."""

    def close(self, deadline: float) -> list[Failure]:
        """Wait until it has ended, and end it by force after `deadline` (time.monotonic).

        Safe to call again.
        """


class Backend(Protocol):
    """Where workers run."""

    name: str
    loses_workers: bool
    """Whether a worker can be lost without the caller: then it can be replaced, too."""

    @property
    def start_method(self) -> str | None:
        """How its processes come into being; None where there are none."""

    def launch(self, builds: Sequence[Build], started: Callable[[Any], None]) -> None:
        """Start one worker per command; they build their environments side by side.

        Each is handed to `started` as soon as there is something of it to close.
        """

    def make_rows(self, shape: RowShape) -> Rows:
        """Rows that the caller and all workers can see."""

    def done(self) -> int:
        """How many environments were stepped in steps of some, by all workers since they began.

        Any other answer counts as more than can be missing; 0 where nobody counts.
        """

    def listen(self, timeout_s: float, wanted: int) -> None:
        """Return when they have done as much as that, or one has answered something else.

        At the latest after so long. A backend that does not count returns after any answer.
        """

    def close(self) -> None:
        """Let go of everything that does not belong to a single worker. Safe to call again."""
