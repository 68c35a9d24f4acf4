"""A plain loop over one PettingZoo environment, as the oracle of vector environments of teams."""

from __future__ import annotations

from typing import Any

import numpy as np


class Plain:
    """One environment, reset in the same step when all of its agents have ended."""

    def __init__(self, env: Any) -> None:
        self.env, self.episodes = env, 0
        self.seen: dict[str, Any] = {}
        self.rewards: dict[str, Any] = {}
        self.terminations: dict[str, Any] = {}
        self.truncations: dict[str, Any] = {}
        self.alive_then: list[str] = []
        """Who was left after the latest step, before any reset."""
        self.last: dict[str, Any] | None = None
        """What an episode that has just ended ended with."""
        self.last_infos: dict[str, Any] = {}

    def reset(self, seed: int | None = None) -> None:
        self.seen, _ = self.env.reset(seed=seed)
        self.episodes += 1

    def step(self, actions: dict[str, Any]) -> None:
        """Of those who live."""
        living = {name: actions[name] for name in self.env.agents}
        told = self.env.step(living)
        self.seen, self.rewards, self.terminations, self.truncations, infos = told
        self.alive_then, self.last = list(self.env.agents), None
        if not self.env.agents:
            self.last, self.last_infos = dict(self.seen), infos
            self.reset()


def row_of(values: Any, row: int) -> Any:
    """One environment's part of a batch."""
    if isinstance(values, dict):
        return {key: row_of(one, row) for key, one in values.items()}
    return values[row]


def nothing_of(value: Any, filling: float = 0.0) -> Any:
    """The same with zeros, or with another number where it is of floats."""
    if isinstance(value, dict):
        return {key: nothing_of(one, filling) for key, one in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.full_like(value, filling)
    return value * 0
