"""Evaluation: how agents do on one environment of their own, apart from training.

Its seeds come from a stream that training never draws on, and it draws from a generator of its own:
whether and when a run is evaluated does not change what it learns.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import ConfigError
from shoal.monitor.video import record_first
from shoal.seeding import evaluation_seed
from shoal.training.players import Gains, Plays
from shoal.vector.agents.make import as_it_is


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What some episodes came to."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    by_agent: Mapping[str, float] = field(default_factory=dict)
    """Mean returns of each, where there are several."""

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
            **{f"eval/{name}/return_mean": mean for name, mean in self.by_agent.items()},
        }


def evaluate(
    player: Plays, make_env: Callable[[], Any], num_episodes: int, *, seed: int
) -> Evaluation:
    """Play some episodes, each with a seed of its own: the same ones whenever it is called."""
    if num_episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {num_episodes}.")
    env = make_env()
    try:
        played = [play(env, player, evaluation_seed(seed, k)) for k in range(num_episodes)]
    finally:
        env.close()
    returns, lengths, gains = zip(*played, strict=True)
    by_agent = {name: float(np.mean([one[name] for one in gains])) for name in gains[0]}
    return Evaluation(returns, lengths, by_agent)


def film(player: Plays, make_env: Callable[..., Any], path: Path, *, seed: int) -> None:
    """Film one episode; nothing is left where the environment cannot be seen."""
    folder = path.with_name(f".{path.stem}.unfinished")
    shutil.rmtree(folder, ignore_errors=True)  # a run that was killed may have left one
    try:
        env = record_first(make_env, folder, sys.maxsize, as_it_is)()
        try:
            play(env, player, evaluation_seed(seed, 0))
        finally:
            env.close()
        for found in folder.glob("*.mp4"):
            found.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(env: Any, player: Plays, seed: int) -> tuple[float, int, Gains]:
    """One episode; its return and length, and what each agent got."""
    gains = list(moments(env, player, seed))
    return float(sum(gains)), len(gains), player.gains()


def moments(env: Any, player: Plays, seed: int) -> Iterator[float]:
    """What one episode brings, step by step."""
    player.begin()
    observation, info = env.reset(seed=seed)
    is_over = False
    while not is_over:
        action = player.act(observation, info)
        observation, reward, terminated, truncated, info = env.step(action)
        is_over = bool(terminated or truncated)
        yield player.gain(observation, float(reward))
