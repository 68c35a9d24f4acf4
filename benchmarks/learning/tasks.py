"""The tasks: what is learnt, for how long, with how many seeds, and what each library is told.

Stable-Baselines3 gets the tuned settings of RL Baselines3 Zoo (`hyperparams/ppo.yml` and
`ppo_lstm.yml`); Shoal gets those in `configs/`. On MuJoCo, where much depends on settings, that
library is trained with ours as well. Tasks of several agents, which it cannot be given, are held
against random players, and a game of our own against a scripted one, too. Cheap tasks come first.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from benchmarks.plan import ROOT
from shoal.training.config import PPORun
from shoal.training.settings import load_yaml

LIBRARIES = {
    "shoal": "Shoal",
    "sb3": "Stable-Baselines3",
    "sb3_alike": "Stable-Baselines3 with our settings",
    "random": "random players",
    "scripted": "scripted player",
}


@dataclass(frozen=True, slots=True)
class Linear:
    """A number that falls to nothing by the end; called with the share that is still to come."""

    start: float

    def __call__(self, left: float) -> float:
        return self.start * left


@dataclass(frozen=True, slots=True)
class Settings:
    """What Stable-Baselines3 is told."""

    n_envs: int
    ppo: Mapping[str, Any]
    """Arguments of its PPO; the activation function by its name in torch.nn."""
    normalize: bool = False
    """Whether observations and rewards are scaled by all that was seen."""
    remembers: bool = False
    """Whether it is RecurrentPPO, of sb3-contrib."""


@dataclass(frozen=True, slots=True)
class Task:
    """One row of the results."""

    name: str
    env: str
    """A Gymnasium id, or module:factory."""
    sb3: Settings | None
    """None: that library cannot be given this task."""
    steps: int
    seeds: int = 10
    threshold: float | None = None
    """The score that every seed of ours is to reach; None: nothing is asked."""
    called: str = ""
    """How people know it, if not by the name of the environment."""
    counts_wins: bool = False
    """Whether the score is the share of episodes that were won, and not their return."""
    win: str = ""
    """What the last info of an episode that was won has in it; else its return is above zero."""
    also_alike: bool = False
    """Whether that library is trained with our settings, too."""
    baselines: tuple[str, ...] = ()
    """Players that learn nothing."""
    has_opponents: bool = False
    """Whether one agent of a team is judged, another one in each episode, among random ones."""
    files: tuple[str, ...] = ()
    """What else the results follow from, apart from code: rows of other contents are of no use."""

    @property
    def libraries(self) -> tuple[str, ...]:
        """Ours, and what it is compared with: a verdict is by the first of those."""
        theirs = ("sb3", "sb3_alike") if self.also_alike else ("sb3",)
        return ("shoal", *(() if self.sb3 is None else theirs), *self.baselines)

    @property
    def title(self) -> str:
        """How people know it."""
        if self.called:
            return self.called
        return self.env.partition(":")[2].replace("_", " ").capitalize() or self.env

    @property
    def config(self) -> str:
        """The file that says what Shoal is told."""
        return f"configs/{self.name}.yaml"

    def theirs(self, library: str) -> Settings:
        """What Stable-Baselines3 is told: what is tuned for it, or the same as Shoal."""
        told = self.sb3
        if library == "sb3_alike":
            told = alike(load_yaml(PPORun, ROOT / self.config))
        assert told is not None
        return told

    def settings(self, library: str) -> dict[str, Any]:
        """What a library is told, as JSON holds it."""
        import yaml

        told: dict[str, Any] = {}
        if library == "shoal":
            told = yaml.safe_load((ROOT / self.config).read_text())
        elif library not in self.baselines:
            told = asdict(self.theirs(library))
        if self.files:
            told |= {"files": {file: zlib.crc32((ROOT / file).read_bytes()) for file in self.files}}
        return json.loads(json.dumps(told))  # type: ignore[no-any-return]


_ACTIVATIONS = {"tanh": "Tanh", "relu": "ReLU"}


def alike(config: PPORun) -> Settings:
    """The same in the words of Stable-Baselines3, whose other defaults are the same, too."""
    ppo, network = config.ppo, config.network
    is_falling = ppo.learning_rate_schedule == "linear"
    told = {
        "learning_rate": Linear(ppo.learning_rate) if is_falling else ppo.learning_rate,
        "n_steps": ppo.n_steps,
        "batch_size": ppo.batch_size,
        "n_epochs": ppo.n_epochs,
        "gamma": ppo.gamma,
        "gae_lambda": ppo.gae_lambda,
        "clip_range": ppo.clip_range,
        "ent_coef": ppo.entropy_coef,
        "vf_coef": ppo.value_coef,
        "max_grad_norm": ppo.max_grad_norm,
        "policy_kwargs": {
            "net_arch": list(network.hidden_sizes),
            "activation_fn": _ACTIVATIONS[network.activation],
            "log_std_init": network.initial_log_std,
        },
    }
    return Settings(config.envs.n_envs, told, normalize=network.normalize_observations)


class Job(NamedTuple):
    """One row that is to be made."""

    task: Task
    library: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task.name}-{self.library}-{self.seed}"


def jobs(
    tasks: Iterable[Task], libraries: Sequence[str], num_seeds: int | None = None
) -> Iterator[Job]:
    """Task by task, and in each seed by seed the libraries in turn."""
    for task in tasks:
        for seed in range(task.seeds if num_seeds is None else num_seeds):
            for library in libraries:
                if library in task.libraries:
                    yield Job(task, library, seed)


_CARTPOLE = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": Linear(1e-3),
    "clip_range": Linear(0.2),
}
_REMEMBERING = {
    **_CARTPOLE,
    "policy_kwargs": {
        "ortho_init": False,
        "activation_fn": "ReLU",
        "lstm_hidden_size": 64,
        "enable_critic_lstm": True,
        "net_arch": {"pi": [64], "vf": [64]},
    },
}
_ACROBOT = {"n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4, "ent_coef": 0.0}
_PENDULUM = {
    "n_steps": 1024,
    "gae_lambda": 0.95,
    "gamma": 0.9,
    "n_epochs": 10,
    "ent_coef": 0.0,
    "learning_rate": 1e-3,
    "clip_range": 0.2,
    "use_sde": True,
    "sde_sample_freq": 4,
}
_LUNAR_LANDER = {
    "n_steps": 1024,
    "batch_size": 64,
    "gae_lambda": 0.98,
    "gamma": 0.999,
    "n_epochs": 4,
    "ent_coef": 0.01,
}
_WIDE = {
    "log_std_init": -2,
    "ortho_init": False,
    "activation_fn": "ReLU",
    "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}
_HALF_CHEETAH = {
    "batch_size": 64,
    "n_steps": 512,
    "gamma": 0.98,
    "learning_rate": 2.0633e-05,
    "ent_coef": 0.000401762,
    "clip_range": 0.1,
    "n_epochs": 20,
    "gae_lambda": 0.92,
    "max_grad_norm": 0.8,
    "vf_coef": 0.58096,
    "policy_kwargs": _WIDE,
}
_HOPPER = {
    "batch_size": 32,
    "n_steps": 512,
    "gamma": 0.999,
    "learning_rate": 9.80828e-05,
    "ent_coef": 0.00229519,
    "clip_range": 0.2,
    "n_epochs": 5,
    "gae_lambda": 0.99,
    "max_grad_norm": 0.7,
    "vf_coef": 0.835671,
    "policy_kwargs": _WIDE,
}

_TABLE = (
    Task("cartpole", "CartPole-v1", Settings(8, _CARTPOLE), steps=100_000, threshold=475.0),
    Task("pendulum", "Pendulum-v1", Settings(4, _PENDULUM), steps=100_000),
    Task(
        "hunters_as_one",
        "benchmarks.learning.worlds:hunters_as_one",
        Settings(8, {"n_steps": 256}),  # as scripts/custom_env_main.py
        steps=250_000,
        seeds=5,
        threshold=46.0,  # twice what random players get
        called="Hunters of the grid world as one agent",
        baselines=("random",),
        files=("configs/gridworld.yaml",),
    ),
    Task("acrobot", "Acrobot-v1", Settings(16, _ACROBOT, normalize=True), steps=300_000),
    Task(
        "memory",
        "benchmarks.learning.worlds:cartpole_without_velocities",
        Settings(8, _REMEMBERING, normalize=True, remembers=True),
        steps=100_000,
    ),
    Task(
        "lunarlander",
        "LunarLander-v3",
        Settings(16, _LUNAR_LANDER),
        steps=1_000_000,
        threshold=200.0,
    ),
    Task(
        "hopper",
        "Hopper-v5",
        Settings(1, _HOPPER, normalize=True),
        steps=1_000_000,
        seeds=3,
        also_alike=True,
    ),
    Task(
        "halfcheetah",
        "HalfCheetah-v5",
        Settings(1, _HALF_CHEETAH, normalize=True),
        steps=1_000_000,
        seeds=3,
        also_alike=True,
    ),
    Task(
        "connect_four",
        "classic/connect_four-v3",
        None,
        steps=600_000,
        seeds=5,
        threshold=0.95,
        called="Connect four, games won against a random player",
        counts_wins=True,
        baselines=("random",),
    ),
    Task(
        "hunters",
        "shoal.envs:GridWorldEnvMultiAgent",
        None,
        steps=300_000,
        seeds=5,
        threshold=25.0,  # four times what random players get
        called="Three hunters of the grid world",
        baselines=("random",),
    ),
    Task(
        "simple_spread",
        "mpe2.simple_spread_v3:parallel_env",
        None,
        steps=300_000,
        seeds=5,
        threshold=-60.0,  # of what random players lose, three quarters
        called="MPE simple spread",
        baselines=("random",),
    ),
    Task(
        "simple_push",
        "mpe2.simple_push_v3:parallel_env",
        None,
        steps=200_000,
        seeds=5,
        threshold=-6.0,  # half of what random players lose
        called="MPE simple push, one of both against a random other",
        baselines=("random",),
        has_opponents=True,
    ),
    Task(
        "gameboy_long",
        "shoal.envs.gameboy:GameBoyEnv",
        None,
        steps=1_000_000,
        seeds=3,
        threshold=0.9,
        called="Tidekeep on a Game Boy, games won",
        counts_wins=True,
        win="goal",
        baselines=("random", "scripted"),
        files=("src/shoal/envs/gameboy/game/tidekeep.gb",),
    ),
)
TASKS = {task.name: task for task in _TABLE}
