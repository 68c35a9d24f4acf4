"""What a training run can be told: typed, in groups, each field explained once beneath it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from shoal.algos.networks import NetworkConfig
from shoal.algos.ppo.config import PPOConfig
from shoal.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EnvConfig:
    """Environments, and where they run."""

    env: str = "CartPole-v1"
    """An id of Gymnasium or PettingZoo, or module:factory."""
    n_envs: int = 1
    """Environments that are stepped at once; 1 is one after the other, in this process."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """What each environment is made with."""
    backend: Literal["auto", "serial", "thread", "process", "hybrid"] = "auto"
    """Where they run; auto measures one and chooses."""
    num_workers: int | None = None
    """Workers that share the environments; None: as many as help."""
    overlap: bool = False
    """Step one half of the environments while the policy decides about the other."""
    parallel_start_method: Literal["spawn", "fork", "forkserver"] | None = None
    """How worker processes come into being; None: what suits this system."""
    policies: tuple[str, ...] = ("shared",)
    """Of several agents: shared (one for all who are alike), separate, or NAME=agent,agent_* ..."""
    random_opponents: float = 0.0
    """Where agents take turns: the share of environments in which all but one act by chance."""
    step_timeout_s: float | None = None
    """An environment that takes longer for a step is ended and rebuilt (backend process)."""

    def __post_init__(self) -> None:
        _check_least(self, n_envs=1)
        if self.overlap and self.n_envs < 2:
            raise ConfigError("overlap needs two environments at least: n_envs is 1.")
        if not 0.0 <= self.random_opponents <= 1.0:
            raise ConfigError(
                f"random_opponents must be from 0 to 1, got {self.random_opponents:g}."
            )


DEFAULT_STEPS = 100_000
"""The goal of a run that is given none."""


@dataclass(frozen=True, slots=True)
class GoalConfig:
    """When the run is over: whichever comes first."""

    total_steps: int | None = None
    """After so many steps of all environments; None: 100,000, unless num_episodes says."""
    num_episodes: int | None = None
    """When the first so many episodes, by when they began, have ended."""

    def __post_init__(self) -> None:
        _check_least(self, total_steps=1, num_episodes=1)


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """What is written, shown and tried out meanwhile."""

    run_dir: Path = Path("runs")
    """Where the folder of this run is made."""
    checkpoint_dir: Path | None = None
    """Where checkpoints go; None: into the run's folder."""
    save_every: int = 100
    """Write a checkpoint every so many episodes; 0: none by episodes."""
    save_every_minutes: float = 5.0
    """Keep latest_model up to date every so many minutes, however long episodes are; 0: never."""
    eval_every: int = 100
    """Evaluate every so many episodes; 0: only at the end."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""
    eval_max_steps: int = 30_000
    """Steps after which an episode of an evaluation is left, if it has not ended."""
    eval_stochastic: bool = False
    """Evaluate, and film, with actions drawn as in training; else with the most probable ones."""
    eval_against: Literal["auto", "itself", "random"] = "auto"
    """Who plays the others where agents take turns; auto: random ones, from each seat in turn."""
    console: Literal["display", "lines"] = "display"
    """How it is shown: drawn over itself where there is a terminal, or line by line anywhere."""
    log_interval: int = 10
    """Print a line every so many episodes, where there is no display."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    wandb: bool = False
    """Log to Weights & Biases."""
    wandb_project: str = "shoal"
    """Under which project."""
    video_every: int = 0
    """Record an episode of environment 0 every so many steps of it; 0: only the final policy."""
    calibrate: bool = True
    """Measure how much faster this is than one environment, at the start."""

    def __post_init__(self) -> None:
        _check_least(self, eval_episodes=1, eval_max_steps=1, log_interval=1)
        _check_least(self, save_every=0, eval_every=0, video_every=0)
        if not 0.0 <= self.save_every_minutes < math.inf:
            raise ConfigError(
                "save_every_minutes must be a number that is not below zero, got "
                f"{self.save_every_minutes:g}."
            )


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The run itself."""

    seed: int = 0
    """The same seed gives the same run, whatever backend and number of workers."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where the network is computed; auto: a GPU for pictures and large networks, else the CPU."""
    num_threads: int | None = None
    """Threads of PyTorch; None: one for small networks."""
    resume_from: Path | None = None
    """A run's folder, or a checkpoint: go on from there."""

    def __post_init__(self) -> None:
        _check_least(self, seed=0, num_threads=1)


@dataclass(frozen=True, slots=True)
class PPORun:
    """Everything about a PPO run."""

    envs: EnvConfig = field(default_factory=EnvConfig)
    goal: GoalConfig = field(default_factory=GoalConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if self.ppo.n_steps * self.envs.n_envs < 2:
            raise ConfigError("n_steps times n_envs must be at least 2: there is nothing to learn.")


def _check_least(config: object, **least: int) -> None:
    for name, bound in least.items():
        value = getattr(config, name)
        if value is not None and value < bound:
            raise ConfigError(f"{name} must be at least {bound}, got {value}.")
