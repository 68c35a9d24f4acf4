"""Evaluation: how an agent does on one environment of its own, apart from training.

Its seeds come from a stream that training never draws on, and it draws from a generator of its own:
whether and when a run is evaluated does not change what it learns.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shoal.algos.agent import Agent
from shoal.errors import ConfigError
from shoal.layout import Array
from shoal.monitor.video import record_first
from shoal.rollout.collector import mask_in
from shoal.seeding import evaluation_seed


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What some episodes came to."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        return float(np.std(self.returns))

    def metrics(self) -> dict[str, float]:
        return {
            "eval/return_mean": self.mean,
            "eval/return_std": self.std,
            "eval/length_mean": float(np.mean(self.lengths)),
            "eval/episodes": len(self.returns),
        }


class Player:
    """An agent that plays in one environment, remembering what it must."""

    def __init__(self, agent: Agent, *, deterministic: bool = True, seed: int = 0) -> None:
        self._agent, self._deterministic = agent, deterministic
        self._random = torch.Generator().manual_seed(seed)
        self.begin()

    def begin(self) -> None:
        """An episode begins: nothing is remembered."""
        self._state = self._agent.initial_state(1)

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        """The action for one observation, as the environment takes it."""
        layout = self._agent.layout
        parts = layout.take_apart(observation)
        leaves = tuple(
            np.asarray(part, dtype=leaf.dtype)[None]
            for leaf, part in zip(layout.leaves, parts, strict=True)
        )
        masks = _mask(observation, info or {})
        if self._deterministic:
            actions, self._state = self._agent.act_best(leaves, self._state, masks)
            return actions[0]
        (noise,) = self._agent.noise(1, 1, self._random)
        decision = self._agent.act(leaves, self._state, masks, noise)
        self._state = decision.state
        return decision.env_actions[0]


def evaluate(
    agent: Agent,
    make_env: Callable[[], Any],
    num_episodes: int,
    *,
    seed: int,
    deterministic: bool = True,
) -> Evaluation:
    """Play some episodes, each with a seed of its own: the same ones whenever it is called."""
    if num_episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {num_episodes}.")
    env = make_env()
    try:
        player = Player(agent, deterministic=deterministic, seed=seed)
        played = [play(env, player, evaluation_seed(seed, k)) for k in range(num_episodes)]
    finally:
        env.close()
    returns, lengths = zip(*played, strict=True)
    return Evaluation(returns, lengths)


def film(agent: Agent, make_env: Callable[[], Any], path: Path, *, seed: int) -> None:
    """Film one episode; nothing is left where the environment cannot be seen."""
    folder = path.with_name(f".{path.stem}.unfinished")
    shutil.rmtree(folder, ignore_errors=True)  # a run that was killed may have left one
    try:
        env = record_first(make_env, folder, every_steps=sys.maxsize)()
        try:
            play(env, Player(agent), evaluation_seed(seed, 0))
        finally:
            env.close()
        for found in folder.glob("*.mp4"):
            found.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(env: Any, player: Player, seed: int) -> tuple[float, int]:
    """One episode; its return and length."""
    rewards = list(moments(env, player, seed))
    return float(sum(rewards)), len(rewards)


def moments(env: Any, player: Player, seed: int) -> Iterator[float]:
    """The rewards of one episode, step by step."""
    player.begin()
    observation, info = env.reset(seed=seed)
    is_over = False
    while not is_over:
        action = player.act(observation, info)
        observation, reward, terminated, truncated, info = env.step(action)
        is_over = bool(terminated or truncated)
        yield float(reward)


def _mask(observation: Any, info: dict[str, Any]) -> Array | None:
    mask = mask_in(observation, info)
    return None if mask is None else np.asarray(mask, dtype=np.bool_)[None]
