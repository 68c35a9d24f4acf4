"""The training loop: one for all algorithms.

    source ──rollout──► learner ──metrics──► sinks          what people see
                                    └──────► callbacks      what is done about it

A source is anything that yields rollouts: a collector, an asynchronous one, remote actors. Nothing
in here knows which, nor what a learner does with one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from shoal.errors import ConfigError
from shoal.monitor.sink import Sink
from shoal.vector.env import VectorEnv


class Experience(Protocol):
    """A rollout, or several: what the loop needs to know of it."""

    @property
    def num_steps(self) -> int:
        """Steps of all environments together."""

    @property
    def step(self) -> int:
        """Steps of the whole run, up to the end of this."""

    def metrics(self) -> dict[str, float]: ...


Lived = TypeVar("Lived", bound=Experience)
Learnt = TypeVar("Learnt", contravariant=True)


class Learner(Protocol[Learnt]):
    """Improves agents by rollouts."""

    def update(self, rollout: Learnt) -> dict[str, float]:
        """Learn from one; metrics of that."""


class Callback(Protocol):
    """Called after every update, with the run as it stands."""

    def __call__(self, run: Progress) -> None: ...


SPENT = ("stepping", "inference", "learning")
"""What the time of a run goes to."""


class Progress:
    """A run as it stands: what callbacks see, and what they can do."""

    def __init__(
        self,
        sinks: Sequence[Sink] = (),
        envs: VectorEnv | None = None,
        change: Callable[..., None] | None = None,
    ) -> None:
        self.sinks, self._envs, self._change = sinks, envs, change
        self.step = self.num_updates = 0
        self.metrics: dict[str, float] = {}
        """The latest of every kind."""
        self.working_s = 0.0
        """Seconds in which rollouts were collected and learnt from; callbacks and sinks aside."""
        self.spent_s = dict.fromkeys(SPENT, 0.0)
        """... and on what."""
        self.stopped_by: str | None = None

    def go_on(self, step: int, num_episodes: int, time_s: float) -> None:
        """Count on from where a run was broken off."""
        self.step = step
        self.metrics |= {"run/episodes": num_episodes, "run/time_s": time_s}

    @property
    def envs(self) -> VectorEnv:
        """The environments, all of them between two steps.

        `set_attr` and `set_next_reset` give them other tasks. Do not step or reset them.
        """
        if self._envs is None:
            raise ConfigError("this run was begun without naming its environments.")
        return self._envs

    def change(self, **settings: Any) -> None:
        """Learn by other settings of the algorithm from the next update on.

        `change(learning_rate=1e-4)`. Where a schedule is set, it goes on with the new value.
        Checkpoints keep what was changed, and a run that goes on from one goes on with it.
        """
        if self._change is None:
            raise ConfigError("this run was begun without a way to change its settings.")
        self._change(**settings)

    def stop(self, reason: str) -> None:
        """End the run after this update."""
        self.stopped_by = self.stopped_by or reason

    def write(self, metrics: Mapping[str, float]) -> None:
        """Tell all sinks."""
        self.metrics.update(metrics)
        for sink in self.sinks:
            sink.write(self.step, metrics)


def learn(
    source: Iterable[Lived],
    learner: Learner[Lived],
    progress: Progress,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Learn from one rollout after the other, until there are no more or somebody says stop."""
    before_s = progress.metrics.get("run/time_s", 0.0)
    first = then = time.perf_counter()
    for rollout in source:
        begun = time.perf_counter()
        metrics = rollout.metrics() | learner.update(rollout)
        now = time.perf_counter()
        spent_s = _spent(metrics, now - begun)
        metrics |= {f"time/{name}": share for name, share in shares_of(spent_s).items()}
        metrics |= _pace(rollout, metrics, progress.metrics, now - then)
        metrics["run/time_s"] = before_s + now - first
        progress.working_s += now - then
        for name, seconds in spent_s.items():
            progress.spent_s[name] += seconds
        progress.step = rollout.step
        progress.num_updates += 1
        progress.write(metrics)
        for callback in callbacks:
            callback(progress)
        if progress.stopped_by is not None:
            return
        del rollout  # its memory is that of the next one, if nobody else holds it
        then = time.perf_counter()


def _spent(metrics: dict[str, Any], learning_s: float) -> dict[str, float]:
    """Seconds of one update; those of collecting are taken out of its metrics."""
    collecting_s = (metrics.pop(f"time/{name}_s", 0.0) for name in SPENT[:2])
    return dict(zip(SPENT, (*collecting_s, learning_s), strict=True))


def shares_of(spent_s: Mapping[str, float]) -> dict[str, float]:
    """The same as shares of the whole."""
    total = sum(spent_s.values()) or 1.0
    return {name: seconds / total for name, seconds in spent_s.items()}


def _pace(
    rollout: Experience, metrics: Mapping[str, float], before: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """How fast that was, by the time that collecting and learning took."""
    episodes = metrics.get("run/episodes", 0.0) - before.get("run/episodes", 0.0)
    return {
        "engine/steps_per_s": rollout.num_steps / seconds,
        "engine/episodes_per_s": episodes / seconds,
    }
