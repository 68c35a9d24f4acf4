"""Stable-Baselines3's PPO on one task, with one seed; it is imported when it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from benchmarks.learning.rows import Row
from benchmarks.learning.tasks import Job, Settings
from benchmarks.learning.trial import EPISODES, Curve, row_of
from shoal.vector.source import resolve


def train(job: Job, num_episodes: int = EPISODES) -> Row:
    return row_of(job, _learn, num_episodes)


def make_ppo(
    env_factories: Sequence[Callable[[], Any]],
    settings: Settings,
    seed: int,
    backend: Literal["dummy", "subproc"] = "dummy",
) -> Any:
    """Its PPO (or RecurrentPPO) on its own vector environment, not trained yet.

    `env_factories` decide how many environments there are, not `settings.n_envs`. Whoever asked
    closes them: `make_ppo(...).get_env().close()`.
    """
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

    kind = SubprocVecEnv if backend == "subproc" else DummyVecEnv
    envs: Any = kind([partial(_wrapped, Monitor, factory) for factory in env_factories])
    if settings.normalize:
        envs = VecNormalize(envs, gamma=settings.ppo.get("gamma", 0.99))
    algorithm, policy = _algorithm(settings)
    return algorithm(policy, envs, seed=seed, device="cpu", **_arguments(settings))


def _wrapped(wrapper: Callable[[Any], Any], factory: Callable[[], Any]) -> Any:
    return wrapper(factory())


def _algorithm(settings: Settings) -> tuple[Any, str]:
    if settings.remembers:
        from sb3_contrib import RecurrentPPO

        return RecurrentPPO, "MlpLstmPolicy"
    from stable_baselines3 import PPO

    return PPO, "MlpPolicy"


def _arguments(settings: Settings) -> dict[str, Any]:
    from torch import nn

    arguments = dict(settings.ppo)
    if "policy_kwargs" in arguments:
        policy = dict(arguments["policy_kwargs"])
        policy["activation_fn"] = getattr(nn, policy["activation_fn"])
        arguments["policy_kwargs"] = policy
    return arguments


def _learn(job: Job, curve: Curve) -> Player:
    told = job.task.theirs(job.library)
    factories = list(resolve(job.task.env).factories) * told.n_envs
    model = make_ppo(factories, told, job.seed)

    def watch(*_: Any) -> bool:
        if curve.is_due(model.num_timesteps) and model.ep_info_buffer:
            returns = [episode["r"] for episode in model.ep_info_buffer]
            curve.add(model.num_timesteps, float(np.mean(returns)))
        return True

    try:
        model.learn(job.task.steps, callback=watch)
    finally:
        model.get_env().close()
    return Player(model)


class Player:
    """Its policy at play: the most probable actions, observations scaled as in training."""

    def __init__(self, model: Any) -> None:
        self._model, self._scale = model, model.get_vec_normalize_env()
        self.begin()

    def begin(self) -> None:
        self._state: Any = None
        self._is_first = np.ones(1, dtype=np.bool_)

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        if self._scale is not None:
            observation = self._scale.normalize_obs(observation)
        action, self._state = self._model.predict(
            observation, self._state, self._is_first, deterministic=True
        )
        self._is_first = np.zeros(1, dtype=np.bool_)
        return action

    def gain(self, observation: Any, reward: float) -> float:
        return reward
