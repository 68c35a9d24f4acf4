"""Shoal steps many environments at once and trains agents on them.

envs = shoal.make("CartPole-v1", num_envs=64)
observations, infos = envs.reset(seed=7)
"""

import typing as _typing

from shoal import errors
from shoal.engine.batch import Batch
from shoal.errors import (
    ClosedError,
    ConfigError,
    ContractError,
    EnvRaised,
    ShoalError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from shoal.vector.env import VectorEnv
from shoal.vector.make import Faults, make

if _typing.TYPE_CHECKING:
    from shoal.training.api import evaluate, load, train
    from shoal.vector.agents.make import make_team, make_turns
    from shoal.vector.agents.team import TeamVectorEnv
    from shoal.vector.agents.turns import Turn, TurnVectorEnv

__version__ = "0.1.0.dev0"

__all__ = [
    "Batch",
    "ClosedError",
    "ConfigError",
    "ContractError",
    "EnvRaised",
    "Faults",
    "ShoalError",
    "TeamVectorEnv",
    "Turn",
    "TurnVectorEnv",
    "VectorEnv",
    "WorkerDied",
    "WorkerError",
    "WorkerTimeout",
    "errors",
    "evaluate",
    "load",
    "make",
    "make_team",
    "make_turns",
    "train",
]


_AGENTS = {
    "make_team": "make",
    "make_turns": "make",
    "TeamVectorEnv": "team",
    "Turn": "turns",
    "TurnVectorEnv": "turns",
}


def __getattr__(name: str) -> _typing.Any:
    if name in _AGENTS:
        from importlib import import_module

        return getattr(import_module(f"shoal.vector.agents.{_AGENTS[name]}"), name)
    # Stepping environments needs no torch, which takes a second to import.
    if name in ("evaluate", "load", "train"):
        from shoal.extras import needs

        with needs("torch"):
            from shoal.training import api
        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
