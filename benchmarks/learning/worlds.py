"""A world that cannot be mastered without a memory, and one of hunters who are one agent."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from benchmarks.plan import ROOT

_PLACES = [0, 2]
"""Of cart and pole; the other two numbers are how fast they move."""


class WithoutVelocities(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole that shows where things are, and not how fast they move."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, Box)
        self.observation_space = Box(space.low[_PLACES], space.high[_PLACES], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[_PLACES]


def cartpole_without_velocities(render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    return WithoutVelocities(
        gymnasium.make("CartPole-v1", render_mode=render_mode, disable_env_checker=True)
    )


def hunters_as_one() -> gymnasium.Env[Any, Any]:
    """What `scripts/custom_env_main.py` trains on."""
    from shoal.envs import FlattenMultiAgentWrapper, GridWorldConfig, GridWorldEnvMultiAgent

    world = GridWorldConfig.from_yaml(ROOT / "configs" / "gridworld.yaml")
    return FlattenMultiAgentWrapper(GridWorldEnvMultiAgent.from_config(world))
