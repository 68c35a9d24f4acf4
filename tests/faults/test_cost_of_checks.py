"""F12: what checking data costs on CartPole, in CPU time. Measured and reported, never asserted."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import Record, Scale

ENV_STEPS = 25_000
"""In one measurement: some tenths of a second."""


def make(num_envs: int, *, observations: bool, actions: bool) -> shoal.VectorEnv:
    """CartPole on the serial backend, with or without checks of either kind.

    Without them values are copied into their rows unseen, which is the least that can be done.
    """
    envs = shoal.make("CartPole-v1", num_envs, backend="serial", autoreset="same_step")
    if not observations:
        for cell in envs._pool.workers[0]._share.cells:
            cell._writes = [
                copying(*row) for writer in cell._writers for _, *row in writer._targets
            ]
    if not actions:
        copy = copying(*envs._pool.books.rows.actions)
        envs._pool.books.actions.write = lambda env_ids, actions, ignored: copy(actions)
    return envs


def copying(row: np.ndarray) -> Callable[[Any], None]:
    def copy(value: Any) -> None:
        row[...] = value

    return copy


def cpu_s(envs: shoal.VectorEnv, actions: Sequence[np.ndarray]) -> tuple[float, np.ndarray]:
    """CPU time of so many steps, and what was observed last."""
    envs.reset(seed=0)
    gc.collect()
    gc.disable()
    begun = time.process_time()
    for action in actions:
        observations, *_ = envs.step(action)
    took_s = time.process_time() - begun
    gc.enable()
    return took_s, observations


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median, and an interval that holds it in 19 of 20 cases, by order statistics."""
    ordered = sorted(values)
    rank = max(0, int((len(ordered) - 1.96 * len(ordered) ** 0.5) / 2))
    return statistics.median(ordered), ordered[rank], ordered[-1 - rank]


@pytest.mark.parametrize("num_envs", [8, 64])
def test_checks_change_nothing_but_the_time(num_envs: int, scale: Scale, figure: Record) -> None:
    pairs = scale(short=2, full=30)
    steps = scale(short=50, full=ENV_STEPS // num_envs)
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 2, num_envs) for _ in range(steps)]
    without = make(num_envs, observations=False, actions=False)
    checked = {
        "all": make(num_envs, observations=True, actions=True),
        "of observations": make(num_envs, observations=True, actions=False),
        "of actions": make(num_envs, observations=False, actions=True),
    }
    extra: dict[str, list[float]] = {name: [] for name in checked}
    for pair in range(pairs):
        for name, envs in checked.items():
            # Interleaved, and each goes first in every second pair: machines drift.
            order = (envs, without) if pair % 2 else (without, envs)
            taken = {one: cpu_s(one, actions) for one in order}
            np.testing.assert_array_equal(taken[envs][1], taken[without][1])
            extra[name].append(taken[envs][0] / taken[without][0] - 1)
    shares = {name: interval(values) for name, values in extra.items()}
    told = [
        f"{name} {median:+.1%} ({low:+.1%} to {high:+.1%})"
        for name, (median, low, high) in shares.items()
    ]
    figure("F12", f"CPU time of checks, {num_envs} CartPoles", f"{', '.join(told)}; {pairs} pairs")
