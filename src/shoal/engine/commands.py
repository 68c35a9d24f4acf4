"""What passes between the caller and a worker: commands one way, replies the other.

Plain data, so that it can cross a process boundary. A worker also keeps a *mark*: three words that
say what it is at, for whoever watches it from outside.
"""

from __future__ import annotations

import array
import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium

from shoal.engine.infos import ColumnSpec, OddInfo
from shoal.errors import ConfigError, ContractError, EnvRaised, RemoteTraceback, ShoalError
from shoal.seeding import Seed

Factory = Callable[[], Any]
"""Makes one environment."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which environments a worker is to build: its even share of all of them, in one block.

    There is a single factory for all, or (then each makes one environment) one for each of the
    block.
    """

    worker: int
    num_workers: int
    num_envs: int
    factories: Sequence[Factory]
    one_each: bool = False
    """Whether each factory is for one environment."""

    def block(self, width: int = 1) -> range:
        """The ids of this worker's environments, where each factory call makes `width` of them."""
        calls = self.num_envs // width
        first, last = (calls * k // self.num_workers for k in (self.worker, self.worker + 1))
        return range(first * width, last * width)


class ResetArgs(NamedTuple):
    """How to reset one environment."""

    seed: Seed = None
    options: dict[str, Any] | None = None


MARK_ENV, MARK_PHASE, MARK_SINCE_NS = range(3)
PHASES = (
    "idle",
    "start",
    "construct",
    "reset",
    "step",
    "set_next_reset",
    "call",
    "set_attr",
    "close",
)


def private_mark() -> memoryview:
    """Where a worker writes down what it is at, if nobody watches it from another process."""
    return memoryview(array.array("q", [0] * 3))


@dataclass(slots=True)
class Step:
    """Step all environments of the share, or those marked in `rows.asked`."""

    slot: int
    everyone: bool = True
    columns: Sequence[ColumnSpec] = ()
    """New info columns, to be made before anything else."""
    objects: dict[int, Any] | None = None
    """Parts of actions that have no row, or `Loose` actions, by env id."""

    @property
    def is_light(self) -> bool:
        """Nothing but what fits into a signal."""
        return not self.columns and self.objects is None


@dataclass(slots=True)
class Reset:
    """Reset these environments, each with its own seed and options."""

    slot: int
    args: dict[int, ResetArgs]


@dataclass(slots=True)
class PlanReset:
    """What the next automatic reset of these environments uses."""

    args: dict[int, ResetArgs]


@dataclass(slots=True)
class Call:
    """Call a method (or read an attribute) of each of these environments."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    env_ids: Sequence[int]


@dataclass(slots=True)
class SetAttr:
    """Set an attribute of environments, each to its own value."""

    name: str
    values: dict[int, Any]


Command = Step | Reset | PlanReset | Call | SetAttr


@dataclass(slots=True)
class Failure:
    """An exception of one environment, ready to travel."""

    env_ids: tuple[int, ...]
    phase: str
    error: BaseException | None
    """None where it could not be pickled."""
    kind: str
    text: str
    trace: str
    seed: Seed = None
    episode: int = 0
    length: int = 0
    action: str = ""

    def as_error(self, worker: int, pid: int | None) -> ShoalError:
        """The exception that the caller raises for it, with the original as its cause."""
        which = f"env {self.env_ids[0]}" if len(self.env_ids) == 1 else f"envs {self.env_ids}"
        place = f"worker {worker}" + (f", pid {pid}" if pid else "")
        if isinstance(self.error, ConfigError):
            return self.error
        if isinstance(self.error, ContractError):
            kind = type(self.error)
            return kind(f"{which}, in {self.phase} ({self._when()}{place}): {self.text}")
        raised = EnvRaised(
            f"{which} raised {self.kind} in {self.phase} ({self._when()}{place}): {self.text}\n"
            "Its own traceback follows as the cause.",
            worker=worker,
            env_ids=self.env_ids,
            phase=self.phase,
            pid=pid,
        )
        remote = RemoteTraceback(self.trace)
        if self.error is not None:
            if self.error.__traceback__ is None:
                self.error.__cause__ = remote
            raised.__cause__ = self.error
        else:
            raised.__cause__ = remote
        return raised

    def _when(self) -> str:
        parts = [f"episode {self.episode}, step {self.length}"] if self.episode else []
        parts += [f"seed {self.seed}"] if self.seed is not None else []
        parts += [f"action {self.action}"] if self.action else []
        return "".join(f"{part}; " for part in parts)


@dataclass(slots=True)
class Reply:
    """What a worker has to say beyond its rows."""

    failures: list[Failure] = field(default_factory=list)
    odd_infos: list[OddInfo] = field(default_factory=list)
    objects: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    final_objects: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    final_scalars: dict[int, Any] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    logs: list[logging.LogRecord] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Built:
    """What the caller must know of a share before rows can be made."""

    spaces: tuple[tuple[gymnasium.Space[Any], gymnasium.Space[Any]], ...]
    """Observation and action space, one pair per cell."""
    widths: tuple[int, ...]
    block: range
    """The ids of its environments."""
    metadata: dict[str, Any]
    render_mode: str | None


def failure_of(
    error: BaseException, env_ids: tuple[int, ...] = (), phase: str = "construct"
) -> Failure:
    """An exception as it travels."""
    env_ids = env_ids or (getattr(error, "env_id", 0),)
    trace = "".join(traceback.format_exception(error))
    return Failure(env_ids, phase, error, type(error).__name__, _text_of(error), trace)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:
        return f"<its text could not be made: {type(problem).__name__}>"
