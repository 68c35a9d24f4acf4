"""Rewards scaled by how far returns are spread, by all that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.layout import Array
from shoal.rollout.rollout import Rollout

_MOST = 10.0


class RewardScale:
    """Divides rewards by the standard deviation of discounted returns so far."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self._gamma = gamma
        self._returns = np.zeros(num_envs)
        self._mean = self._variance = self._count = 0.0

    def scaled(self, rollout: Rollout) -> Array:
        """The rewards of a rollout, after all its returns have been seen."""
        returns = self._discounted(rollout)
        self._see(returns if rollout.valid.all() else returns[rollout.valid])
        scale = 1.0 / np.sqrt(self._variance + 1e-8)
        scaled: Array = np.clip(rollout.rewards * scale, -_MOST, _MOST).astype(np.float32)
        return scaled

    def _discounted(self, rollout: Rollout) -> Array:
        ended = rollout.terminations | rollout.truncations
        each = np.empty(rollout.rewards.shape)
        for t, (rewards, valid) in enumerate(zip(rollout.rewards, rollout.valid, strict=True)):
            each[t] = self._returns * self._gamma + rewards
            self._returns = np.where(valid, each[t], self._returns)
            self._returns = np.where(ended[t], 0.0, self._returns)
        return each

    def _see(self, returns: Array) -> None:
        size, mean, variance = returns.size, float(returns.mean()), float(returns.var())
        total, apart = self._count + size, mean - self._mean
        joined = self._variance * self._count + variance * size
        joined += apart * apart * self._count * size / total
        self._mean += apart * size / total
        self._variance, self._count = joined / total, total

    def state(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {
            "returns": self._returns.tolist(),
            "mean": self._mean,
            "variance": self._variance,
            "count": self._count,
        }

    def put_state(self, state: Mapping[str, Any]) -> None:
        self._returns = np.array(state["returns"])
        self._mean, self._variance = state["mean"], state["variance"]
        self._count = state["count"]
