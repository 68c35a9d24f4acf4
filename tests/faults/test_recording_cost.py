"""F1b: what it costs in CPU time to record episodes for a replay, by paired, interleaved runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import FULL, Record, Scale
from shoal import Faults
from shoal.engine import generators

NUM_ENVS = 64
STEPS = 400 if FULL else 20
Measure = Callable[[], float]


def pool(backend: str, limit_steps: int) -> shoal.VectorEnv:
    on_failure = "replay" if backend == "process" else "restart"
    faults = Faults(replay_limit_steps=limit_steps)
    given: dict[str, Any] = {"num_workers": 2, "on_failure": on_failure, "faults": faults}
    envs = shoal.make("CartPole-v1", NUM_ENVS, backend=backend, **given)
    envs.reset(seed=0)
    return envs


def cpu_s(envs: shoal.VectorEnv) -> float:
    """CPU time of the caller and the workers."""
    spent_ns = time.process_time_ns()
    for worker in envs._pool.workers:
        if worker.pid is not None:
            for task in Path(f"/proc/{worker.pid}/task").iterdir():
                spent_ns += int((task / "schedstat").read_text().split()[0])
    return spent_ns / 1e9


def measured(envs: shoal.VectorEnv, actions: np.ndarray) -> float:
    """CPU seconds of a number of steps, the same ones every time."""
    envs.reset(seed=1)
    begun = cpu_s(envs)
    for row in actions:
        envs.step(row)
    return cpu_s(envs) - begun


def extra_cost(with_it: Measure, without_it: Measure, pairs: int) -> str:
    """By how much the first is dearer: the median of all pairs and its 95 % interval."""
    for run in (with_it, without_it):
        run()  # warm
    ratios = []
    for k in range(pairs):
        if k % 2:
            dear = with_it()
            ratios.append(dear / without_it())
        else:
            cheap = without_it()
            ratios.append(with_it() / cheap)
    draw = np.random.default_rng(0)
    medians = np.median(draw.choice(ratios, (2000, len(ratios))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5]) - 1
    return f"{np.median(ratios) - 1:+.1%} ({low:+.1%} to {high:+.1%}, {pairs} pairs)"


def some_actions() -> np.ndarray:
    return np.random.default_rng(0).integers(2, size=(STEPS, NUM_ENVS))


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_what_recording_actions_costs(backend: str, scale: Scale, figure: Record) -> None:
    actions = some_actions()
    with pool(backend, 100_000) as recording, pool(backend, 0) as plain:
        cost = extra_cost(
            lambda: measured(recording, actions),
            lambda: measured(plain, actions),
            scale(short=2, full=40),
        )
    figure("F1b", f"CPU time of recording actions, CartPole, {backend}", cost)


def test_what_recording_generators_costs(
    monkeypatch: pytest.MonkeyPatch, scale: Scale, figure: Record
) -> None:
    actions = some_actions()

    def without() -> float:
        with monkeypatch.context() as patch:
            patch.setattr(generators.Recorder, "note", lambda recorder: None)
            return measured(envs, actions)

    with pool("serial", 0) as envs:
        cost = extra_cost(lambda: measured(envs, actions), without, scale(short=2, full=40))
    figure("F1b", "CPU time of recording generators, CartPole, serial", cost)
