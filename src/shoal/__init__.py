"""Shoal steps many environments at once and trains agents on them.

envs = shoal.make("CartPole-v1", num_envs=64)
observations, infos = envs.reset(seed=7)
"""

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

__version__ = "0.1.0.dev0"

__all__ = [
    "Batch",
    "ClosedError",
    "ConfigError",
    "ContractError",
    "EnvRaised",
    "Faults",
    "ShoalError",
    "VectorEnv",
    "WorkerDied",
    "WorkerError",
    "WorkerTimeout",
    "errors",
    "make",
]
