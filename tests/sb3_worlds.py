"""Worlds for the tests of the drop-ins for Stable-Baselines3; workers import this, and no torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from shoal.testing import CountingWorld


def tagged(kind: Callable[..., Any], count: int = 4, **kwargs: Any) -> list[Any]:
    """Factories, each with its own tag."""
    return [functools.partial(kind, tag, **kwargs) for tag in range(count)]


def cart_pole() -> Any:
    return gymnasium.make("CartPole-v1")


def pendulum() -> Any:
    """All of its episodes are cut off by their time limit."""
    return gymnasium.make("Pendulum-v1", max_episode_steps=13)


class Pair(CountingWorld):
    """Observes a tuple, and is told several choices at once."""

    def __init__(self, tag: int = 0) -> None:
        super().__init__(tag, action="multidiscrete", infos="sparse")
        self.observation_space = spaces.Tuple((self.observation_space, spaces.Discrete(1000)))

    def _observation(self) -> Any:
        return super()._observation(), np.int64(self._record.step)


class Screen(CountingWorld):
    """Observes pictures that are large enough for the usual layers of convolution."""

    def __init__(self, tag: int = 0) -> None:
        super().__init__(tag)
        self.observation_space = spaces.Box(0, 255, (36, 36, 3), np.uint8)

    def _observation(self) -> Any:
        return np.full((36, 36, 3), self._record.draw % 256, np.uint8)


class Line(gymnasium.Env[Any, Any]):
    """A goal on a line: what the reward would have been for another goal can be asked."""

    def __init__(self, length: int = 6) -> None:
        place = spaces.Box(-length, length, (1,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = spaces.Dict(dict.fromkeys(names, place))
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.length = length
        self.asked = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._place = np.zeros(1, np.float32)
        self._goal = self.np_random.uniform(-2, 2, 1).astype(np.float32)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._place = np.clip(self._place + action, -self.length, self.length).astype(np.float32)
        self._steps += 1
        reward = float(self.compute_reward(self._place, self._goal, {}))
        is_there = reward == 0.0
        return self._seen(), reward, is_there, self._steps >= self.length, {"is_success": is_there}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        self.asked += 1
        return -(np.abs(achieved - desired).max(axis=-1) > 0.5).astype(np.float32)

    def _seen(self) -> dict[str, Any]:
        return {
            "observation": self._place.copy(),
            "achieved_goal": self._place.copy(),
            "desired_goal": self._goal.copy(),
        }


class Odd(CountingWorld):
    """Says things of which kinds and shapes differ from step to step, and cannot be batched."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        step = self._record.step
        info = {
            "mixed": [step, float(step), str(step), None][step % 4],
            "ragged": np.arange(step),
            "huge": 2**70 + step,
            "flag": np.bool_(step % 2),
            "deep": {"step": step if step % 2 else "none", "always": step},
            7: "no text",
        }
        return observation, reward, terminated, truncated, info


class Talkative(CountingWorld):
    """Has attributes and methods of all kinds."""

    def __init__(self, tag: int = 0, render_mode: str | None = None) -> None:
        super().__init__(tag, render_mode=render_mode)
        self.goal = tag * 10
        self.unpicklable = (number for number in range(tag))

    def add(self, number: int, *, factor: int = 1) -> int:
        return (self.goal + number) * factor

    def fail(self) -> None:
        raise KeyError(f"tag {self.tag}")

    def has_imported(self, module: str) -> bool:
        return module in sys.modules


def wrapped(tag: int) -> Any:
    return Outer(TimeLimit(Talkative(tag), 30))


class Outer(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper with an attribute of its own."""

    label = "outer"


class Reluctant(CountingWorld):
    """Raises in its third step."""

    def step(self, action: Any) -> Any:
        if self._record.step == 2:
            raise ZeroDivisionError(f"tag {self.tag}")
        return super().step(action)


class Plain(CountingWorld):
    """Takes no options, as some environments do."""

    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class Listener(CountingWorld):
    """Knows of what type its last action was."""

    def __init__(self, tag: int) -> None:
        super().__init__(tag)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)

    def step(self, action: Any) -> Any:
        self.heard = str(action.dtype)
        return super().step(action)


class Bare(CountingWorld):
    """Denies that it could be rendered."""

    def get_wrapper_attr(self, name: str) -> Any:
        if name == "render_mode":
            raise AttributeError(name)
        return super().get_wrapper_attr(name)
