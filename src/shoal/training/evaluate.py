"""Evaluation: how agents do on one environment of their own, apart from training.

Its seeds come from a stream that training never draws on, and it draws from a generator of its own:
whether and when a run is evaluated does not change what it learns.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import ConfigError
from shoal.monitor import video
from shoal.seeding import evaluation_seed
from shoal.training.players import Gains, Plays
from shoal.vector.agents.make import as_it_is

log = logging.getLogger("shoal")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What some episodes came to."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    by_agent: Mapping[str, float] = field(default_factory=dict)
    """Mean returns of each, where there are several."""
    num_cut: int = 0
    """Episodes that had not ended by themselves when it was enough."""

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


class Played(NamedTuple):
    """One episode, or its beginning."""

    total: float
    length: int
    gains: Gains
    is_whole: bool


def evaluate(
    player: Plays, make_env: Callable[[], Any], num_episodes: int, *, seed: int, max_steps: int
) -> Evaluation:
    """Play some episodes, each with a seed of its own: the same ones whenever it is called.

    One that does not end is left after `max_steps`, and counts as far as it went.
    """
    for name, value in (("episodes", num_episodes), ("max_steps", max_steps)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1, got {value}.")
    env = make_env()
    try:
        seeds = (evaluation_seed(seed, k) for k in range(num_episodes))
        played = [play(env, player, one, max_steps) for one in seeds]
    finally:
        env.close()
    returns, lengths, gains, are_whole = zip(*played, strict=True)
    by_agent = {name: float(np.mean([one[name] for one in gains])) for name in gains[0]}
    return Evaluation(returns, lengths, by_agent, are_whole.count(False))


def warn_of_cut(found: Evaluation, max_steps: int) -> None:
    """Say that episodes were left before their end, and what can be done about it."""
    log.warning(
        "%d of %d episodes of the evaluation had not ended after %d steps and were left there: "
        "their returns are those of so many steps. Raise --eval-max-steps if they are longer; if "
        "they never end, give the environment a limit (gymnasium.wrappers.TimeLimit).",
        found.num_cut,
        len(found.returns),
        max_steps,
    )


def film(player: Plays, make_env: Callable[..., Any], path: Path, *, seed: int) -> None:
    """Film one episode, or its beginning; nothing is left where the environment cannot be seen."""
    folder = path.with_name(f".{path.stem}.unfinished")
    shutil.rmtree(folder, ignore_errors=True)  # a run that was killed may have left one
    try:
        env = video.record_first(make_env, folder, sys.maxsize, as_it_is)()
        try:
            play(env, player, evaluation_seed(seed, 0), video.MAX_FRAMES)
        finally:
            env.close()
        for found in folder.glob("*.mp4"):
            found.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def play(env: Any, player: Plays, seed: int, max_steps: int) -> Played:
    """One episode, but no more than so many steps of it."""
    gains: list[float] = []
    player.begin()
    observation, info = env.reset(seed=seed)
    is_over = False
    while not is_over and len(gains) < max_steps:
        action = player.act(observation, info)
        observation, reward, terminated, truncated, info = env.step(action)
        is_over = bool(terminated or truncated)
        gains.append(player.gain(observation, float(reward)))
    return Played(float(sum(gains)), len(gains), player.gains(), is_over)
