"""What is stepped: the same environment code for everyone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np


class Empty(gymnasium.Env[Any, Any]):
    """A step that does nothing: what is left is the engine."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._observation = np.zeros(4, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation, 0.0, False, False, {}


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


WORKLOADS: dict[str, Callable[[], Any]] = {"empty step": Empty, "CartPole-v1": cartpole}
