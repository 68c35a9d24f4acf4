"""How fast training would be with one environment: measured for a moment, and never asserted."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from shoal.algos.agent import MakeNetwork
from shoal.rollout.collector import Goal
from shoal.rollout.rollout import Rollout, Rollouts
from shoal.training.config import EnvConfig, GoalConfig, PPORun
from shoal.training.ppo import Training, threads
from shoal.vector.source import Source


def one_env_steps_per_s(
    config: PPORun, env: Source, make_network: MakeNetwork | None, seconds: float = 1.0
) -> float:
    """Steps per second of the same training with a single environment.

    Measured are rounds of collecting and learning, of one step, of two, of four and so on up to
    `n_steps`, until `seconds` have passed; the longest ones count. Time is bounded that way, at
    about twice `seconds`, unless a single step or gradient takes longer. A round that has fewer
    steps than a gradient of the run is learnt from as if it were repeated: learning costs as much
    for each step as in the run. The environment is stepped in this process, or in a worker where
    steps have a time limit; first resets are not in the measure.
    """
    ppo = replace(config.ppo, n_steps=max(2, config.ppo.n_steps))  # one alone is refused
    alone = replace(config, envs=_alone(config.envs), goal=GoalConfig(), ppo=ppo)
    batch = min(config.ppo.batch_size, config.ppo.n_steps * config.envs.n_envs)
    with (
        Training(alone, env, make_network) as training,
        threads(config.run.num_threads, training.agent),
    ):
        rounds = list(_rounds(training, config.ppo.n_steps, max(2, batch), seconds))
    longest, _ = rounds[-1]
    return 1.0 / float(np.median([step_s for length, step_s in rounds if length == longest]))


def _alone(envs: EnvConfig) -> EnvConfig:
    one = replace(envs, n_envs=1, backend="serial", num_workers=None, overlap=False)
    return one if envs.step_timeout_s is None else replace(one, backend="process")


def _rounds(
    training: Training, most: int, batch: int, seconds: float
) -> Iterator[tuple[int, float]]:
    """How many steps each has, and how many seconds one of them took."""
    begun, length = time.perf_counter(), 1
    while True:
        yield length, _step_s(training, length, batch)
        if time.perf_counter() - begun >= seconds:
            return
        length = min(2 * length, most)


def _step_s(training: Training, length: int, batch: int) -> float:
    """Seconds for each step of one round."""
    rollout = training.collector(length, Goal()).collect()
    collecting_s = rollout.facts["time/stepping_s"] + rollout.facts["time/inference_s"]
    material = _repeated(rollout, math.ceil(batch / length))
    begun = time.perf_counter()
    training.learner.update(material)
    learning_s = time.perf_counter() - begun
    return float(collecting_s / length + learning_s / material.num_steps)


def _repeated(rollout: Any, times: int) -> Any:
    """The same, so many times one after the other."""
    if isinstance(rollout, Rollouts):
        parts = {name: _repeated(one, times) for name, one in rollout.parts.items()}
        return replace(rollout, parts=parts, num_steps=rollout.num_steps * times)
    assert isinstance(rollout, Rollout)
    arrays = {
        field.name: _tiled(getattr(rollout, field.name), times)
        for field in fields(rollout)
        if isinstance(getattr(rollout, field.name), np.ndarray | tuple)
    }
    return replace(rollout, **arrays)


def _tiled(arrays: Any, times: int) -> Any:
    if isinstance(arrays, tuple):
        return tuple(_tiled(one, times) for one in arrays)
    return np.concatenate([arrays] * times)
