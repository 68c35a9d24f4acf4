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
    """Action 2 is best, and forbidden; of the others 1 is right."""

    action_space: spaces.Space[Any] = spaces.Discrete(3)
    possible: tuple[int, ...] = (1, 1, 0)

    def mask(self) -> Any:
        return np.array(self.possible, dtype=np.int8)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(**kwargs)
        return observation, {"action_mask": self.mask()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.check(action)
        *results, _ = super().step(action)
        return *results, {"action_mask": self.mask()}  # type: ignore[return-value]

    def check(self, action: Any) -> None:
        assert self.mask()[action], "a forbidden action was taken"

    def reward(self, action: Any) -> float:
        return (-1.0, 1.0, 2.0)[action]


class Allowed(Masked):
    """The same, and everything may be done."""

    possible = (1, 1, 1)


class MaskedSwitches(Masked):
    """Two choices at a time: the first is right where it is the last one that is possible.

    Which one is forbidden, and would earn the most, depends on what is seen, as the second does.
    """

    action_space = spaces.MultiDiscrete([3, 2])

    def first(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def mask(self) -> Any:
        return np.array([1, 1, 0, 1, 1] if self.shown > 0 else [0, 1, 1, 1, 1], dtype=np.int8)

    def check(self, action: Any) -> None:
        assert self.mask()[action[0]], "a forbidden action was taken"

    def reward(self, action: Any) -> float:
        earned = (-1.0, 0.5, 2.0) if self.shown > 0 else (2.0, -1.0, 0.5)
        return earned[action[0]] + (0.5 if (action[1] == 1) == (self.shown > 0) else -0.5)


class MaskSeen(Probe):
    """What is possible is part of the observation; what is forbidden would earn the most."""

    observation_space = spaces.Dict(
        {"hint": spaces.Discrete(2), "action_mask": spaces.MultiBinary(3)}
    )
    action_space = spaces.Discrete(3)

    def first(self) -> float:
        return float(self.np_random.integers(2))

    def see(self, value: float) -> Any:
        mask = np.array([1, 1, 0] if value else [0, 1, 1], dtype=np.int8)
        return {"hint": int(value), "action_mask": mask}

    def reward(self, action: Any) -> float:
        forbidden, right = (2, 1) if self.shown else (0, 2)
        assert action != forbidden, "a forbidden action was taken"
        return {forbidden: 2.0, right: 1.0}.get(action, -1.0)


class Buttons(Probe):
    """Two switches: the first is right where it is on for 1, off for -1; the second where off."""

    action_space = spaces.MultiBinary(2)

    def first(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def reward(self, action: Any) -> float:
        return float((action[0] == 1) == (self.shown > 0)) + float(action[1] == 0) - 1.0


class Remembered(Probe):
    """What is seen at first, and then no more, has to be told at the end."""

    length = 4

    def first(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def reward(self, action: Any) -> float:
        if self.step_number < self.length:
            return 0.0
        return 1.0 if (action == 1) == (self.shown > 0) else -1.0


class Endless(Seen):
    """What is seen, 1 or -1, is the reward for ever, but for a limit of 5 steps.

    So values are 1 / (1 - gamma) times what is seen: whether an episode is cut short does not
    matter, and what the next one begins with does not either.
    """

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        return self.see(self.shown), self.shown, False, self.step_number == 5, {}


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
