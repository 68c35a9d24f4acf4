"""Probe worlds of several agents: each has one thing to learn, and what that is is known."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

NAMES = ("left", "right")


class Told(ParallelEnv):  # type: ignore[type-arg]
    """Each of two agents sees 1 or -1, and does right to answer what it sees; one step long."""

    metadata: ClassVar[dict[str, Any]] = {"name": "told", "render_modes": []}
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents, self.agents = list(NAMES), list[str]()
        self.np_random = np.random.default_rng()
        self._sees, self._does = spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2)

    def observation_space(self, agent: str) -> Any:
        return self._sees

    def action_space(self, agent: str) -> Any:
        return self._does

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.agents = list(NAMES)
        shown = self.np_random.choice([-1.0, 1.0], 2)
        self.shown = dict(zip(NAMES, shown, strict=True))
        return self._seen(), {name: {} for name in NAMES}

    def step(self, actions: dict[str, Any]) -> Any:
        rewards = {name: self.reward(name, int(action)) for name, action in actions.items()}
        self.agents = []
        over, cut = dict.fromkeys(NAMES, True), dict.fromkeys(NAMES, False)
        return self._seen(), rewards, over, cut, {name: {} for name in NAMES}

    def reward(self, name: str, action: int) -> float:
        return 1.0 if action == self.right(name) else -1.0

    def right(self, name: str) -> int:
        return int(self.shown[name] > 0)

    def _seen(self) -> dict[str, Any]:
        return {name: np.array([one], np.float32) for name, one in self.shown.items()}


class Opposed(Told):
    """The same, and `right` has to answer the opposite: one policy cannot do it for both."""

    def right(self, name: str) -> int:
        return int((self.shown[name] > 0) == (name == "left"))


class Elsewhere(Told):
    """Whatever they do, each gets what the *other* one sees: who sees all knows the value."""

    def reward(self, name: str, action: int) -> float:
        (other,) = set(NAMES) - {name}
        return float(self.shown[other])


class Passed(AECEnv):  # type: ignore[type-arg]
    """Agents take turns, once each: `left` sees 1 or -1, and `right` what `left` did.

    Both do right to answer what they see; `left` gets what it has earned when both are through.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "passed", "render_modes": []}
    render_mode = None

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents, self.np_random = list(NAMES), np.random.default_rng()
        self._sees, self._does = spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2)

    def observation_space(self, agent: str) -> Any:
        return self._sees

    def action_space(self, agent: str) -> Any:
        return self._does

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.agents, self.agent_selection = list(NAMES), NAMES[0]
        self.shown = float(self.np_random.choice([-1.0, 1.0]))
        self._earned = 0.0
        self.rewards = dict.fromkeys(NAMES, 0.0)
        self._cumulative_rewards = dict.fromkeys(NAMES, 0.0)
        self.terminations, self.truncations = (
            dict.fromkeys(NAMES, False),
            dict.fromkeys(NAMES, False),
        )
        self.infos: dict[str, Any] = {name: {} for name in NAMES}

    def observe(self, agent: str) -> Any:
        return np.array([self.shown], np.float32)

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        earned = 1.0 if (action == 1) == (self.shown > 0) else -1.0
        self.rewards = dict.fromkeys(NAMES, 0.0)
        if agent == "left":
            self._earned, self.shown = earned, 2.0 * int(action) - 1.0
            self.agent_selection = "right"
        else:
            self.rewards = {"left": self._earned, "right": earned}
            self.terminations = dict.fromkeys(NAMES, True)
            self.agent_selection = "left"
        self._accumulate_rewards()
