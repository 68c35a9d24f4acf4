"""Teams for AgileRL's loops, whose every reset is decided by a seed."""

from __future__ import annotations

import os
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper

LENGTHS = (6, 9, 4)


class Seeded(BaseParallelWrapper):  # type: ignore[type-arg]
    """AgileRL's loops reset without a seed; here the first of these resets has one."""

    def __init__(self, env: Any, seed: int) -> None:
        super().__init__(env)
        self._first_seed: int | None = seed

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seed = self._first_seed if seed is None else seed
        self._first_seed = None
        return self.env.reset(seed=seed, options=options)


class Chase(ParallelEnv):  # type: ignore[type-arg]
    """Agents on a line are paid for being near zero; each leaves at a time of its own.

    `kind` is what they see: "floats", "numbers" (a Discrete space) or "bytes". With `pauses`, who
    stays is told something only in every other step, and acts only then. Rendering takes `slow_s`
    seconds; in the folder `births` each environment leaves a file. What `agent_0` does may be
    `defined`, in infos.
    """

    metadata: dict[str, Any] = {"name": "chase", "render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        kind: str = "floats",
        pauses: bool = False,
        slow_s: float = 0.0,
        births: str = "",
        defined: int | None = None,
    ) -> None:
        self.possible_agents = [f"agent_{k}" for k in range(len(LENGTHS))]
        self.agents: list[str] = []
        self.render_mode = None
        self._kind, self._pauses, self._slow_s, self._defined = kind, pauses, slow_s, defined
        self.time = 0
        if births:
            Path(births, f"{os.getpid()}-{uuid.uuid4()}").touch()
        self._rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return {
            "floats": spaces.Box(-9, 9, (3,), np.float32),
            "numbers": spaces.Discrete(19),
            "bytes": spaces.Box(0, 255, (3,), np.uint8),
        }[self._kind]

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.time, self.agents = 0, list(self.possible_agents)
        self._places = {name: int(self._rng.integers(-3, 4)) for name in self.agents}
        return self._seen(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) <= set(self.possible_agents)
        self.time += 1
        told = [name for name in self.agents if self._is_told(name)]
        for name in told:
            if name in actions:
                place = self._places[name] + int(actions[name]) - 1
                self._places[name] = int(np.clip(place, -9, 9))
        ends = dict(zip(self.possible_agents, LENGTHS, strict=True))
        terminations = {name: self.time >= ends[name] and name != "agent_1" for name in told}
        truncations = {name: self.time >= ends[name] and name == "agent_1" for name in told}
        rewards = {name: -float(abs(self._places[name])) for name in told}
        seen = self._seen(told)
        self.agents = [
            name
            for name in self.agents
            if not (terminations.get(name, False) or truncations.get(name, False))
        ]
        return seen, rewards, terminations, truncations, self._infos(told)

    def _infos(self, names: list[str]) -> dict[str, Any]:
        if self._defined is None:
            return {name: {} for name in names}
        key = "env_defined_actions"
        return {name: {key: self._defined if name == "agent_0" else None} for name in names}

    def _is_told(self, name: str) -> bool:
        number, ends = self.possible_agents.index(name), LENGTHS
        is_last = self.time >= ends[number]
        return not self._pauses or is_last or self.time % 2 == number % 2

    def _seen(self, names: list[str]) -> dict[str, Any]:
        seen = {}
        for name in names:
            place = self._places[name]
            row = np.array([place, self.time, 1])
            if self._kind == "numbers":
                seen[name] = np.int64(place + 9)
            else:
                kind = np.float32 if self._kind == "floats" else np.uint8
                seen[name] = (row + (9 if kind is np.uint8 else 0)).astype(kind)
        return seen

    def pid(self) -> int:
        return os.getpid()

    def render(self) -> str:
        time.sleep(self._slow_s)
        return "rendered"

    def close(self) -> None:
        pass


def make_seeded(make: Any, seed: int) -> Any:
    return Seeded(make(), seed)


def factories(make: Any, count: int) -> list[Any]:
    """Factories of environments whose resets are all decided."""
    return [partial(make_seeded, make, 100 + k) for k in range(count)]
