"""A grid world in which hunters take turns to catch a moving target.

Reading order: `config`, `world` (the rules), `env` (the same as a PettingZoo environment),
`picture` and `window` (what it looks like).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.envs.gridworld.config import GridWorldConfig
from shoal.extras import needs

if TYPE_CHECKING:
    from shoal.envs.gridworld.env import GridWorldEnvMultiAgent

__all__ = ["GridWorldConfig", "GridWorldEnvMultiAgent"]


def __getattr__(name: str) -> Any:
    if name == "GridWorldEnvMultiAgent":
        with needs("pettingzoo", "multiagent"):
            from shoal.envs.gridworld.env import GridWorldEnvMultiAgent
        return GridWorldEnvMultiAgent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
