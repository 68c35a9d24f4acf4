"""The training loop: one for all algorithms.

    source ──rollout──► learner ──metrics──► sinks          what people see
                                    └──────► callbacks      what is done about it

A source is anything that yields rollouts: a collector, an asynchronous one, remote actors. Nothing
in here knows which, nor what a learner does with one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from shoal.monitor.sink import Sink
from shoal.rollout.rollout import Rollout


class Learner(Protocol):
    """Improves an agent by rollouts."""

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Learn from one; metrics of that."""


class Callback(Protocol):
    """Called after every update, with the run as it stands."""

    def __call__(self, run: Progress) -> None: ...


class Progress:
    """A run as it stands: what callbacks see, and what they can do."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self.step = self.num_updates = 0
        self.metrics: dict[str, float] = {}
        """The latest of every kind."""
        self.stopped_by: str | None = None

    def stop(self, reason: str) -> None:
        """End the run after this update."""
        self.stopped_by = self.stopped_by or reason

    def write(self, metrics: Mapping[str, float]) -> None:
        """Tell all sinks."""
        self.metrics.update(metrics)
        for sink in self._sinks:
            sink.write(self.step, metrics)


def learn(
    source: Iterable[Rollout],
    learner: Learner,
    progress: Progress,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Learn from one rollout after the other, until there are no more or somebody says stop."""
    then = time.perf_counter()
    for rollout in source:
        begun = time.perf_counter()
        metrics = rollout.metrics() | learner.update(rollout)
        now = time.perf_counter()
        metrics |= _shares(metrics, now - begun)
        metrics |= _pace(rollout, metrics, progress.metrics, now - then)
        then = now
        progress.step = rollout.step
        progress.num_updates += 1
        progress.write(metrics)
        for callback in callbacks:
            callback(progress)
        if progress.stopped_by is not None:
            return


def _shares(metrics: dict[str, Any], learning_s: float) -> dict[str, float]:
    """What the time was spent on."""
    taken = {
        "time/stepping": metrics.pop("time/stepping_s", 0.0),
        "time/inference": metrics.pop("time/inference_s", 0.0),
        "time/learning": learning_s,
    }
    total = sum(taken.values()) or 1.0
    return {name: seconds / total for name, seconds in taken.items()}


def _pace(
    rollout: Rollout, metrics: Mapping[str, float], before: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """How fast that was."""
    episodes = metrics.get("run/episodes", 0.0) - before.get("run/episodes", 0.0)
    return {
        "engine/steps_per_s": rollout.num_steps / seconds,
        "engine/episodes_per_s": episodes / seconds,
        "run/time_s": before.get("run/time_s", 0.0) + seconds,
    }
