"""The timed loop: the only one. Actions are sampled and brought into form before the clock runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from shoal.measure.processes import busy_s, cpu_s, descendants
from shoal.measure.session import Session

NUM_SAMPLES = 64
"""Batches of actions that are sampled; they are given in turn."""
_WARM_CALLS = 2


@dataclass(frozen=True, slots=True)
class Timing:
    """What a while of stepping took."""

    steps: int
    """Transitions; calls that only reset are none."""
    calls: int
    wall_s: float
    cpu_s: float | None
    """Of the caller and all processes below it; None where that cannot be known."""
    p50_s: float
    """A call, as half of them took at most ..."""
    p99_s: float
    """... and all but one in a hundred."""
    others_cpu: float | None = None
    """Cores that other programs kept busy meanwhile."""

    @property
    def steps_per_s(self) -> float:
        return self.steps / self.wall_s


@dataclass(frozen=True, slots=True)
class Pauses:
    """What happens while nobody steps."""

    workers_cpu: float | None
    """Cores that the workers burn meanwhile, all together, be they processes or threads."""
    wake_s: float
    """The first call after a pause, as half of them took at most."""


def sample_actions(space: gymnasium.Space[Any], num_envs: int, seed: int = 0) -> list[Any]:
    """Batches of actions for `num_envs` environments that have this space each."""
    batched = batch_space(space, num_envs)
    batched.seed(seed)
    return [batched.sample() for _ in range(NUM_SAMPLES)]


def time_steps(
    session: Session, actions: Sequence[Any], duration_s: float, warmup_s: float = 0.0
) -> Timing:
    """Step for a while. `actions` are as `session.prepare` returned them."""
    prepared = itertools.cycle(actions)
    _warm_up(session, prepared, warmup_s)
    step, clock, latencies, steps = session.step, time.perf_counter, [], 0
    below_s, busy_before_s, own_s = cpu_s(descendants()), busy_s(), time.process_time()
    begun = before = clock()
    until = begun + duration_s
    while before < until:
        steps += step(next(prepared))
        now = clock()
        latencies.append(now - before)
        before = now
    own_s, others_s = time.process_time() - own_s, _minus(busy_s(), busy_before_s)
    below_s = _minus(cpu_s(descendants()), below_s)
    taken_s = None if below_s is None else own_s + below_s
    others_s = _minus(others_s, taken_s)
    wall_s = before - begun
    return Timing(
        steps,
        len(latencies),
        wall_s,
        taken_s,
        *percentiles(latencies),
        others_cpu=None if others_s is None else max(0.0, others_s / wall_s),
    )


def time_pauses(
    session: Session, actions: Sequence[Any], pause_s: float, num_pauses: int = 3
) -> Pauses:
    """Step for a moment, pause, and again: what workers do with a learner that learns."""
    prepared = itertools.cycle(actions)
    burnt: list[float] = []
    woken: list[float] = []
    for _ in range(num_pauses):
        _warm_up(session, prepared, 0.1)
        before, own_s = cpu_s(descendants()), time.process_time()
        time.sleep(pause_s)
        own_s = time.process_time() - own_s  # threads: the caller itself sleeps
        below_s = _minus(cpu_s(descendants()), before)
        if below_s is not None:
            burnt.append((own_s + below_s) / pause_s)
        begun = time.perf_counter()
        session.step(next(prepared))
        woken.append(time.perf_counter() - begun)
    return Pauses(float(np.median(burnt)) if burnt else None, float(np.median(woken)))


def percentiles(latencies: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th."""
    p50, p99 = np.percentile(latencies, (50, 99))
    return float(p50), float(p99)


def _warm_up(session: Session, prepared: Iterator[Any], warmup_s: float) -> None:
    until = time.perf_counter() + warmup_s
    for calls in itertools.count(1):
        session.step(next(prepared))
        if calls >= _WARM_CALLS and time.perf_counter() >= until:
            return


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
