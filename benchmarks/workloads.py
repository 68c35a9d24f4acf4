"""What is stepped: the same environment code for everyone, at module level for plain pickle.

`WORKLOADS` names them; each is found by everyone as "benchmarks.workloads:<factory>".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks.simulator import Remote
from shoal.measure import Mixed
from shoal.measure.session import Kind

EPISODE_STEPS = 1000
"""Long enough that what is measured is stepping, and resets happen as they do elsewhere."""

Result = tuple[Any, float, bool, bool, dict[str, Any]]


class Stepped(gymnasium.Env[Any, Any]):
    """An environment that does one thing at each step, and ends like others do."""

    action_space = spaces.Discrete(2)

    def __init__(
        self,
        observation_space: spaces.Space[Any] | None = None,
        work: Callable[[np.random.Generator], None] | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-1, 1, (4,), np.float32)
        self._observation = _zeros(self.observation_space)
        self._work, self._info = work, info or {}
        self._left = EPISODE_STEPS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = EPISODE_STEPS
        return self._observation, {}

    def step(self, action: Any) -> Result:
        if self._work is not None:
            self._work(self.np_random)
        self._left -= 1
        return self._observation, 0.0, False, self._left <= 0, self._info.copy()


class SteppedDict(Stepped):
    """Returns a new dict of the same arrays each time, as such environments do."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return {**observation}, info

    def step(self, action: Any) -> Result:
        observation, *rest = super().step(action)
        return ({**observation}, *rest)  # type: ignore[return-value]


def _zeros(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _zeros(inner) for name, inner in space.items()}
    return np.zeros(space.shape or (), space.dtype)


# --- work ---------------------------------------------------------------------------------------


def burn(duration_s: float) -> None:
    """Keep the processor busy, as a simulator does."""
    until = time.perf_counter() + duration_s
    while time.perf_counter() < until:
        pass


@dataclass(frozen=True, slots=True)
class Burn:
    """So much work at every step."""

    duration_s: float

    def __call__(self, rng: np.random.Generator) -> None:
        burn(self.duration_s)


@dataclass(frozen=True, slots=True)
class Uneven:
    """Exponential times: most steps are short, some long (stragglers)."""

    mean_s: float
    spend: Callable[[float], None] = burn

    def __call__(self, rng: np.random.Generator) -> None:
        self.spend(rng.exponential(self.mean_s))


# --- factories ----------------------------------------------------------------------------------


def empty() -> Any:
    return Stepped()


def work_10us() -> Any:
    return Stepped(work=Burn(10e-6))


def paused() -> Any:
    return work_10us()


def work_50us() -> Any:
    return Stepped(work=Burn(50e-6))


def work_500us() -> Any:
    return Stepped(work=Burn(500e-6))


def uneven_busy() -> Any:
    return Stepped(work=Uneven(1e-3))


def uneven_waiting() -> Any:
    return Stepped(work=Uneven(1e-3, time.sleep))


def remote_simulator() -> Any:
    return Remote()


def pixels_84() -> Any:
    return Stepped(spaces.Box(0, 255, (84, 84, 4), np.uint8))


def pixels_210() -> Any:
    return Stepped(spaces.Box(0, 255, (210, 160, 3), np.uint8))


def dict_observation() -> Any:
    return SteppedDict(
        spaces.Dict(
            {
                "image": spaces.Box(0, 255, (16, 16, 3), np.uint8),
                "joints": spaces.Box(-np.inf, np.inf, (12,), np.float32),
                "goal": spaces.Box(-np.inf, np.inf, (3,), np.float64),
            }
        )
    )


INFO = {"x": 1.0, "y": 2.0, "energy": 3.5, "contacts": 4, "ok": True}


def numeric_infos() -> Any:
    return Stepped(info=INFO)


def numeric_infos_50us() -> Any:
    return Stepped(work=Burn(50e-6), info=INFO)


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def halfcheetah() -> Any:
    return gymnasium.make("HalfCheetah-v5", disable_env_checker=True)


def gameboy_4() -> Any:
    return _gameboy(4)


def gameboy_24() -> Any:
    return _gameboy(24)


def _gameboy(frames_per_step: int) -> Any:
    from shoal.envs.gameboy import GameBoyEnv

    return GameBoyEnv(frames_per_step=frames_per_step)


one_slow = Mixed(lambda env_id: work_500us if env_id % 32 == 0 else work_10us)
"""One environment in 32 is fifty times as slow."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A course by name."""

    name: str
    factory: str
    says: str
    waits: bool = False
    """Its steps wait: the bound is a process for each environment, whatever the cores."""
    pause_s: float = 0.0
    plays: Kind = "one"
    """Who acts; environments of several agents are in a file of their own."""

    @property
    def env(self) -> str:
        module = __name__ if self.plays == "one" else f"{__package__}.several"
        return f"{module}:{self.factory}"


_ALL = (
    Workload("empty", "empty", "a step that does nothing: what is left is the engine"),
    Workload("work-10us", "work_10us", "10 µs of work at each step"),
    Workload("work-50us", "work_50us", "50 µs of work at each step"),
    Workload("work-500us", "work_500us", "500 µs of work at each step"),
    Workload("uneven", "uneven_busy", "exponential work, 1 ms on average: stragglers"),
    Workload("waiting", "uneven_waiting", "exponential sleeps, 1 ms on average", waits=True),
    Workload("socket", "remote_simulator", "a simulator behind a socket, as slow", waits=True),
    Workload("pixels-84", "pixels_84", "84×84×4 uint8 observations"),
    Workload("pixels-210", "pixels_210", "210×160×3 uint8 observations"),
    Workload("dict", "dict_observation", "a Dict observation of three arrays"),
    Workload("infos", "numeric_infos", "five numbers in the info of every step"),
    Workload("infos-50us", "numeric_infos_50us", "the same, with 50 µs of work"),
    Workload("cartpole", "cartpole", "Gymnasium's CartPole-v1"),
    Workload("halfcheetah", "halfcheetah", "Gymnasium's HalfCheetah-v5 (MuJoCo)"),
    Workload(
        "one-slow", "one_slow", "500 µs of work in one environment of 32, 10 µs in the others"
    ),
    Workload("gameboy-4", "gameboy_4", "Tidekeep on a Game Boy, 4 frames a step"),
    Workload("gameboy-24", "gameboy_24", "the same, 24 frames a step"),
    Workload("spread", "simple_spread", "mpe2's simple_spread: a team of three", plays="team"),
    Workload(
        "connect-four", "connect_four", "PettingZoo's connect four: two take turns", plays="turns"
    ),
    Workload("pauses", "paused", "10 µs of work, and a learner that pauses for 1 s", pause_s=1.0),
)
WORKLOADS = {workload.name: workload for workload in _ALL}
