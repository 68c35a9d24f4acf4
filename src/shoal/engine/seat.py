"""Seats: the places of workers in a pool. A worker may be replaced; its seat stays."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shoal.engine.backends import Worker
from shoal.engine.commands import Command, Reply
from shoal.engine.infos import ColumnSpec
from shoal.errors import WorkerError

if TYPE_CHECKING:
    from shoal.engine.incident import Incident


@dataclass(slots=True)
class Flight:
    """A command that a worker is at."""

    command: Command
    sent: Sequence[int] = ()
    """The environments it was sent to step; empty for anything that is not `send`."""
    replies: list[Reply] = field(default_factory=list)
    """What it has answered: more than once, if environments had to be rebuilt meanwhile."""
    landed: bool = False
    trouble: Exception | None = None
    recovery: Generator[None, None, None] | None = None
    """What is being done about a death or a failure; the flight goes on when it is through."""
    cause: WorkerError | None = None
    """The death that is being recovered from."""
    was_retried: bool = False
    failed: set[int] = field(default_factory=set)
    """The environments for which it came to nothing."""
    incidents: list[Incident] = field(default_factory=list)
    """What has happened on the way and is not over yet."""
    mending: Sequence[int] = ()
    """The environments that raised and are being rebuilt."""
    is_half_recorded: bool = False
    """Whether writing down what it came to has begun; it ends with the flight."""

    def start_over(self) -> None:
        """Forget what was answered: the command will be carried out again, for everyone."""
        self.replies.clear()
        self.failed.clear()


@dataclass(slots=True, eq=False)
class Seat:
    """A place for a worker: who sits there, which environments are its, what it is at."""

    index: int
    worker: Worker
    env_ids: Sequence[int]
    flight: Flight | None = None
    ahead: Flight | None = None
    """A step that was put ahead: it is the flight as soon as that has landed."""
    queued: list[int] = field(default_factory=list)
    """Sent environments that wait until the worker takes more."""
    news: list[ColumnSpec] = field(default_factory=list)
    """Info columns that the worker has not been told of."""
    failures: int = 0
    """How often it had to be replaced since it last answered."""
    given_up: WorkerError | None = None
    """Why it is not replaced any more; whatever is asked of it, this is the answer."""
    spent_ns: int = 0
    """How long those who sat here before were executing commands."""
    is_leaving: bool = False
    """Whether it is given up as soon as its last environment has moved away."""
    first_mb: float = 0.0
    """The memory of its worker when that was first told."""
    patience_s: float = 0.0
    """How long a recovery may wait before it gives the word back."""

    def land(self) -> None:
        """The flight is over; what was put ahead takes its place.

        Safe to do again where Ctrl-C breaks it off.
        """
        if self.ahead is not None and self.ahead is not self.flight:
            self.worker.go_on()
            self.flight = self.ahead
        else:
            self.flight = None
        self.ahead = None

    def call_back(self) -> None:
        """What was put ahead was not begun, and waits again."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None and ahead is not self.flight:
            self.worker.call_back()
            self.queued[:0] = ahead.sent
