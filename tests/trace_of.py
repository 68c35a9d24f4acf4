"""Traces: what a vector environment returned over a run, and whether two of them are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import GraphInstance
from gymnasium.vector import VectorEnv


def run(envs: VectorEnv, steps: int, *, seed: int = 7, mode: str = "next_step") -> list[Any]:
    """Reset and step with actions of a fixed stream; in mode disabled, reset what has ended."""
    envs.action_space.seed(seed + 1)
    trace: list[Any] = [envs.reset(seed=seed)]
    for _ in range(steps):
        trace.append(envs.step(envs.action_space.sample()))
        ended = trace[-1][2] | trace[-1][3]
        if mode == "disabled" and ended.any():
            trace.append(envs.reset(options={"reset_mask": ended}))
    return trace


def assert_same(got: Any, expected: Any, where: str = "trace") -> None:
    """Equal bit for bit: values, dtypes, shapes, structure."""
    if isinstance(expected, np.ndarray):
        assert isinstance(got, np.ndarray), f"{where}: {type(got)} instead of an array"
        assert got.dtype == expected.dtype, f"{where}: {got.dtype} instead of {expected.dtype}"
        assert got.shape == expected.shape, f"{where}: {got.shape} instead of {expected.shape}"
        if expected.dtype == object:
            for k, (a, b) in enumerate(zip(got.flat, expected.flat, strict=True)):
                assert_same(a, b, f"{where}[{k}]")
        else:
            assert got.tobytes() == expected.tobytes(), f"{where}: {got} instead of {expected}"
    elif isinstance(expected, dict):
        assert got.keys() == expected.keys(), f"{where}: {list(got)} instead of {list(expected)}"
        for key in expected:
            assert_same(got[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, (tuple, list, GraphInstance)):
        assert len(got) == len(expected), f"{where}: {len(got)} instead of {len(expected)} entries"
        for k, (a, b) in enumerate(zip(got, expected, strict=True)):
            assert_same(a, b, f"{where}[{k}]")
    else:
        assert got == expected, f"{where}: {got!r} instead of {expected!r}"


def count_episodes(envs: Any, num_steps: int, mode: str) -> list[tuple[float, int]]:
    """Step just reset environments; return and length of every episode that ended, in order."""
    running, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, dtype=int)
    over, episodes = np.zeros(envs.num_envs, dtype=bool), []
    for _ in range(num_steps):
        _, rewards, terminated, truncated, _ = envs.step(np.full(envs.num_envs, 1))
        real = ~over if mode == "next_step" else np.ones(envs.num_envs, dtype=bool)
        running, lengths = running + np.where(real, rewards, 0), lengths + real
        over = terminated | truncated
        for i in np.flatnonzero(over):
            episodes.append((running[i], lengths[i]))
            running[i], lengths[i] = 0.0, 0
        if mode == "disabled" and over.any():
            envs.reset(options={"reset_mask": over})
    return episodes
