"""Probe worlds: each has one thing to learn, and what there is to learn is known."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Probe(gymnasium.Env[Any, Any]):
    """Episodes of one step with a single number to see."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space: spaces.Space[Any] = spaces.Discrete(2)
    length = 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.step_number = 0
        self.shown = self.first()
        return self.see(self.shown), {}

    def first(self) -> float:
        return 0.0

    def see(self, value: float) -> Any:
        return np.array([value], dtype=np.float32)

    def reward(self, action: Any) -> float:
        return 1.0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        reward, is_over = self.reward(action), self.step_number == self.length
        return self.see(self.follow()), reward, is_over, False, {}

    def follow(self) -> float:
        return 0.0


class Constant(Probe):
    """Always a reward of 1: the value is 1."""


class Seen(Probe):
    """The reward is what is seen, 1 or -1: so is the value."""

    def first(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def reward(self, action: Any) -> float:
        return self.shown


class Delayed(Probe):
    """A reward of 1 after two steps: the value is gamma at first (0 is seen) and 1 then (1 is)."""

    length = 2

    def reward(self, action: Any) -> float:
        return float(self.step_number == 2)

    def follow(self) -> float:
        return 1.0


class Chosen(Probe):
    """Action 1 is right."""

    def reward(self, action: Any) -> float:
        return 1.0 if action == 1 else -1.0


class Fitting(Seen):
    """The right action is what is seen."""

    def reward(self, action: Any) -> float:
        return 1.0 if (action == 1) == (self.shown > 0) else -1.0


class Target(Probe):
    """A continuous action is best at half of what is seen."""

    action_space = spaces.Box(-1.0, 1.0, (1,))

    def first(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def reward(self, action: Any) -> float:
        return 1.0 - float((action[0] - 0.5 * self.shown) ** 2)


class Switches(Probe):
    """Two choices at a time: the first is right at 2, the second where it equals what is seen."""

    action_space = spaces.MultiDiscrete([3, 2])

    def first(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def reward(self, action: Any) -> float:
        return float(action[0] == 2) + float((action[1] == 1) == (self.shown > 0)) - 1.0


class Masked(Probe):
    """The best action is forbidden; of the others 1 is right, and 0 is never to be taken."""

    action_space = spaces.Discrete(3)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(**kwargs)
        return observation, {"action_mask": np.array([1, 1, 0], dtype=np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action != 2, "a forbidden action was taken"
        *results, _ = super().step(action)
        return *results, {"action_mask": np.array([1, 1, 0], dtype=np.int8)}  # type: ignore[return-value]

    def reward(self, action: Any) -> float:
        return 1.0 if action == 1 else -1.0


class Remembered(Probe):
    """What is seen at first, and then no more, has to be told at the end."""

    length = 4

    def first(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def reward(self, action: Any) -> float:
        if self.step_number < self.length:
            return 0.0
        return 1.0 if (action == 1) == (self.shown > 0) else -1.0


class Endless(Probe):
    """A reward of 1 for ever, and a limit of 5 steps: the value is 1 / (1 - gamma) all the same."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        return self.see(0.0), 1.0, False, self.step_number == 5, {}


class Described(Probe):
    """The right action is in one part of a Dict; the other parts are of other kinds."""

    observation_space = spaces.Dict(
        {
            "hint": spaces.Discrete(2),
            "noise": spaces.Box(-1.0, 1.0, (2, 2)),
            "flags": spaces.MultiBinary(3),
        }
    )

    def first(self) -> float:
        return float(self.np_random.integers(2))

    def see(self, value: float) -> Any:
        noise = self.np_random.uniform(-1.0, 1.0, (2, 2)).astype(np.float32)
        flags = self.np_random.integers(0, 2, 3).astype(np.int8)
        return {"hint": int(value), "noise": noise, "flags": flags}

    def reward(self, action: Any) -> float:
        return 1.0 if action == int(self.shown) else -1.0


class Picture(Probe):
    """The right action is told by which half of a picture is bright."""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def first(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def see(self, value: float) -> Any:
        picture = np.zeros((36, 36, 1), dtype=np.uint8)
        (picture[:, 18:] if value > 0 else picture[:, :18])[:] = 255
        return picture

    def reward(self, action: Any) -> float:
        return 1.0 if (action == 1) == (self.shown > 0) else -1.0
