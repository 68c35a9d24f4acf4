"""What PPO can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PPOConfig:
    """How PPO learns. Defaults suit small problems on a CPU."""

    learning_rate: float = 3e-4
    """Of Adam, at the start."""
    learning_rate_schedule: Literal["constant", "linear"] = "constant"
    """Whether it stays, or falls to nothing by the end of the run."""
    n_steps: int = 128
    """Steps of every environment between two updates."""
    n_epochs: int = 10
    """How often each update goes through what was collected."""
    batch_size: int = 64
    """Steps in one gradient."""
    gamma: float = 0.99
    """How much a reward counts that comes one step later."""
    gae_lambda: float = 0.95
    """How far advantages look ahead before they trust the value: 0 one step, 1 to the end."""
    clip_range: float = 0.2
    """How far an action's probability may move in one update."""
    clip_range_schedule: Literal["constant", "linear"] = "constant"
    """Whether that stays, or falls to nothing by the end of the run."""
    clip_values: bool = False
    """Whether values may not move further than `clip_range` either."""
    value_coef: float = 0.5
    """Weight of the value's loss."""
    entropy_coef: float = 0.0
    """Weight of the entropy: how much variety of actions is worth."""
    max_grad_norm: float = 0.5
    """Gradients that are longer than this are shortened to it."""
    target_kl: float | None = None
    """End an update when the policy has moved so far from the one that acted; None: never."""
    normalize_advantages: bool = True
    """Scale the advantages of each batch to mean 0 and variance 1."""
    normalize_rewards: bool = False
    """Scale rewards so that returns have variance 1, by all that was seen."""
    central_critic: bool = False
    """Whether values of a team's agents may depend on what all of them see (MAPPO)."""
    sequence_length: int = 16
    """Steps that a policy with a memory learns from in one piece."""

    def __post_init__(self) -> None:
        for name in ("n_steps", "n_epochs", "batch_size", "sequence_length"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("gamma", "gae_lambda"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigError(f"{name} must be from 0 to 1, got {getattr(self, name):g}.")
        for name in ("learning_rate", "clip_range", "max_grad_norm", "target_kl"):
            value = getattr(self, name)
            if value is not None and not value > 0.0:
                raise ConfigError(f"{name} must be above zero, got {value:g}.")
        for name in ("value_coef", "entropy_coef"):
            if not getattr(self, name) >= 0.0:
                raise ConfigError(f"{name} must not be below zero, got {getattr(self, name):g}.")
