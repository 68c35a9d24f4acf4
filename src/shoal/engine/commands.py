"""What passes between the caller and a worker: commands one way, replies the other.

Plain data, so that it can cross a process boundary. A worker begins with no environment at all:
`Build` gives it some, `Attach` gives them rows, `Restore` puts rebuilt ones where they were. It
also keeps a *mark*: four words that say what it is at, for whoever watches it from outside.
"""

from __future__ import annotations

import array
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium

from shoal.engine.actions import each_action
from shoal.engine.infos import ColumnSpec, OddInfo
from shoal.engine.rows import Rows
from shoal.errors import ConfigError, ContractError, EnvRaised, RemoteTraceback, ShoalError
from shoal.layout import Array, Layout
from shoal.seeding import Seed

Factory = Callable[[], Any]
"""Makes one environment."""
Called = str | Callable[..., Any]
"""The name of a method or attribute, or a function whose first argument is the environment."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which environments a worker is to build: those named, or its even share of all in one block.

    There is a single factory for all, or (then each makes one environment) one for each of them.
    """

    worker: int
    num_workers: int
    num_envs: int
    factories: Sequence[Factory]
    one_each: bool = False
    """Whether each factory is for one environment."""
    env_ids: Sequence[int] | None = None

    def ids(self, width: int = 1) -> Sequence[int]:
        """The ids of these environments, where each factory call makes `width` of them."""
        if self.env_ids is not None:
            return self.env_ids
        calls = self.num_envs // width
        first, last = (calls * k // self.num_workers for k in (self.worker, self.worker + 1))
        return range(first * width, last * width)


class ResetArgs(NamedTuple):
    """How to reset one environment."""

    seed: Seed = None
    options: dict[str, Any] | None = None
    is_derived: bool = False
    """Whether the seed is that of a restart, and not the caller's."""

    def keywords(self, takes_options: bool) -> dict[str, Any]:
        """What `env.reset` is given: seed and options, as Gymnasium does it, None or not."""
        if self.options is None and not takes_options:
            return {"seed": self.seed}
        # A dict of its own: some environments take out of it what they have seen to.
        return {"seed": self.seed, "options": self.options and dict(self.options)}


@dataclass(frozen=True, slots=True)
class Episode:
    """All that is needed to bring an environment to where it is in its running episode."""

    args: ResetArgs
    generator: Any
    """State of `np_random` before the reset, where no seed was given: see `generators.py`."""
    actions: Sequence[Array]
    """One array per action leaf that has rows, [length, ...]."""
    objects: Mapping[int, Any]
    """Actions, or parts of them, that have no row, by step."""
    changes: Sequence[tuple[int, str, Any]]
    """Attributes that were set while it ran, each after so many steps."""
    length: int
    episode_return: float
    is_over: bool
    """Whether it has ended, and the reset is still to come."""

    def each_action(self, layout: Layout) -> list[Any]:
        """Its actions, just as the environment was given them."""
        has_objects = bool(self.objects) or layout.has_objects
        objects = [self.objects.get(k) for k in range(self.length)] if has_objects else None
        return each_action(layout, self.actions, objects)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a rebuilt environment goes on: where it was (by replay), or with a lost episode."""

    slot: int
    """Where its last known observation lies."""
    attributes: Mapping[str, Any]
    """What `set_attr` had set before the running episode began."""
    next_reset: ResetArgs | None
    """What its next automatic reset uses."""
    num_episodes: int = 0
    """How many it had begun; none means that it was never reset."""
    seed: Seed = None
    episode: Episode | None = None
    """To be replayed, and checked against what is known; None where it is lost, or over."""
    is_lost: bool = False
    """Whether the loss of a running episode has to be reported by its next step."""
    generator: Any = None
    """State for its `np_random`, where it goes on between two episodes."""
    objects: tuple[Any, ...] = ()
    """Those parts of the last known observation that have no row."""


MARK_ENV, MARK_PHASE, MARK_SINCE_NS, MARK_STEP = range(4)
NOBODY = -1
"""What MARK_ENV says while none of the environments is at anything."""
PHASES = (
    "idle",
    "start",
    "construct",
    "reset",
    "step",
    "replay",
    "set_next_reset",
    "call",
    "set_attr",
    "close",
)


class Place(NamedTuple):
    """What a worker is at."""

    env_id: int
    phase: str
    step: int
    """Of a replay."""


def place_of(mark: Sequence[int] | memoryview) -> Place:
    """What a mark says."""
    return Place(int(mark[MARK_ENV]), PHASES[mark[MARK_PHASE]], int(mark[MARK_STEP]))


def private_mark() -> memoryview:
    """Where a worker writes down what it is at, if nobody watches it from another process."""
    return memoryview(array.array("q", [0] * 4))


@dataclass(slots=True)
class Build:
    """Make environments; where the share has one of that number, the new one takes its place."""

    assignment: Assignment


@dataclass(slots=True)
class Attach:
    """Take these rows, from here on, and the info columns that there are."""

    rows: Rows
    columns: Sequence[ColumnSpec] = ()


@dataclass(slots=True)
class Restore:
    """Bring environments that were just built to where they were."""

    how: dict[int, Recovery]


@dataclass(slots=True)
class Snapshot:
    """Tell the state of the generators of these environments."""

    env_ids: Sequence[int]


@dataclass(slots=True)
class Release:
    """Close these environments and forget them."""

    env_ids: Sequence[int]
    others: bool = False
    """Whether it is all others that go."""


@dataclass(slots=True)
class Step:
    """Step all environments of the share, or those that are asked for.

    There are two lists of who is asked for (`rows.asked`): one for a step that is under way, one
    for a step that was put ahead.
    """

    slot: int
    """Where the results of all go; for a step of some, which list says who and where."""
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
    """Reset these environments, each with its own seed and options, into its own slot."""

    args: dict[int, ResetArgs]
    slots: dict[int, int]


@dataclass(slots=True)
class PlanReset:
    """What the next automatic reset of these environments uses."""

    args: dict[int, ResetArgs]


@dataclass(slots=True)
class Call:
    """Call a method (or read an attribute) of each of these environments, or a function on it."""

    name: Called
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    env_ids: Sequence[int]


@dataclass(slots=True)
class SetAttr:
    """Set an attribute of environments, each to its own value."""

    name: str
    values: dict[int, Any]


Command = Build | Attach | Restore | Snapshot | Release | Step | Reset | PlanReset | Call | SetAttr


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
    built: Built | None = None
    generators: dict[int, Any] = field(default_factory=dict)
    """States of generators that do not fit into a row, by env id."""


@dataclass(frozen=True, slots=True)
class Built:
    """What the caller must know of a share before rows can be made."""

    spaces: tuple[tuple[gymnasium.Space[Any], gymnasium.Space[Any]], ...]
    """Observation and action space, one pair per cell."""
    widths: tuple[int, ...]
    env_ids: tuple[int, ...]
    metadata: dict[str, Any]
    render_mode: str | None


def failure_of(
    error: BaseException, env_ids: tuple[int, ...] = (), phase: str = "construct"
) -> Failure:
    """An exception as it travels."""
    env_ids = env_ids or (getattr(error, "env_id", 0),)
    trace = "".join(traceback.format_exception(error))
    return Failure(env_ids, phase, error, type(error).__name__, text_of(error), trace)


def text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as problem:
        return f"<its text could not be made: {type(problem).__name__}>"
