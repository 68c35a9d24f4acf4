"""Worlds of our own, and conversions between the ways in which several agents can act.

    from shoal.envs import FlattenMultiAgentWrapper, GridWorldEnvMultiAgent, as_aec, as_parallel
    from shoal.envs import GameBoyEnv

What each needs (PettingZoo; PyBoy for Game Boys) is imported when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.envs.conversions import FlattenMultiAgentWrapper, as_aec, as_parallel
    from shoal.envs.gameboy import GameBoyConfig, GameBoyEnv
    from shoal.envs.gridworld import GridWorldConfig, GridWorldEnvMultiAgent

__all__ = [
    "FlattenMultiAgentWrapper",
    "GameBoyConfig",
    "GameBoyEnv",
    "GridWorldConfig",
    "GridWorldEnvMultiAgent",
    "as_aec",
    "as_parallel",
]

_HOMES = {
    "FlattenMultiAgentWrapper": "conversions",
    "GameBoyConfig": "gameboy",
    "GameBoyEnv": "gameboy",
    "GridWorldConfig": "gridworld",
    "GridWorldEnvMultiAgent": "gridworld",
    "as_aec": "conversions",
    "as_parallel": "conversions",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"shoal.envs.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
