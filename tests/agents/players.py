"""Worlds of several agents for tests: some die early, some are born late, all are deterministic."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

NAMES = ["ann", "bob", "cyd", "dee"]


class Meadow(ParallelEnv):  # type: ignore[type-arg]
    """Agents walk on a line; each lives for a time of its own, and `dee` comes later.

    `alike` says whether all see and do the same; `masks` where it is said what they may do.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "meadow",
        "render_modes": ["rgb_array"],
        "render_fps": 4,
    }

    def __init__(self, alike: bool = True, masks: str = "", render_mode: str | None = None) -> None:
        self.possible_agents, self.render_mode = list(NAMES), render_mode
        self.agents: list[str] = []
        self._alike, self._masks = alike, masks
        self._spaces = {name: self._space(k) for k, name in enumerate(NAMES)}
        sizes = [3 if alike else 2 + k for k in range(len(NAMES))]
        self._actions = {name: spaces.Discrete(n) for name, n in zip(NAMES, sizes, strict=True)}
        self.np_random = np.random.default_rng()
        self.height = 1.0

    def _space(self, k: int) -> Any:
        size = 2 if self._alike else 2 + k
        seen: Any = spaces.Box(-100.0, 100.0, (size,), np.float32)
        if not self._alike and k == 1:
            seen = spaces.Dict({"near": seen, "count": spaces.Discrete(1000)})
        if self._masks == "observation":
            mask = spaces.MultiBinary(3 if self._alike else 2 + k)
            return spaces.Dict({"observation": seen, "action_mask": mask})
        return seen

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.time = 0
        self.agents = NAMES[:3]
        self.ends = {name: int(self.np_random.integers(2, 9)) for name in NAMES}
        self.places = {name: float(self.np_random.normal()) for name in NAMES}
        if options and "place" in options:
            self.places["ann"] = float(options["place"])
        return self._seen(), {name: {"born": k} for k, name in enumerate(self.agents)}

    def _mask(self, name: str) -> Any:
        mask = np.ones(self._actions[name].n, np.int8)
        mask[(self.time + len(name)) % len(mask)] = 0
        return mask

    def _seen(self) -> dict[str, Any]:
        seen = {}
        for name in self.agents:
            k = NAMES.index(name)
            size = 2 if self._alike else 2 + k
            row = np.full(size, self.places[name], np.float32)
            row[0] = self.time
            one: Any = row
            if not self._alike and k == 1:
                one = {"near": row, "count": np.int64(self.time)}
            if self._masks == "observation":
                one = {"observation": one, "action_mask": self._mask(name)}
            seen[name] = one
        return seen

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents), (actions, self.agents)
        self.time += 1
        for name, action in actions.items():
            self.places[name] += (int(action) - 1) * self.height + 0.01 * self.np_random.normal()
        if self.time == 3 and "dee" not in self.agents:
            self.agents = [*self.agents, "dee"]
        rewards = {name: self.places[name] for name in self.agents}
        terminations = {name: self.time == self.ends[name] for name in self.agents}
        truncations = {name: self.time >= 8 and not terminations[name] for name in self.agents}
        infos: dict[str, Any] = {name: {} for name in self.agents}
        infos[self.agents[0]] = {"time": self.time}
        if self._masks == "info":
            for name in self.agents:
                infos[name]["action_mask"] = self._mask(name)
        seen = self._seen()
        self.agents = [
            name for name in self.agents if not (terminations[name] or truncations[name])
        ]
        return seen, rewards, terminations, truncations, infos

    def state(self) -> Any:
        return np.array([self.time], np.float32)

    def render(self) -> Any:
        return np.full((4, 4, 3), self.time, np.uint8)

    def close(self) -> None:
        pass


class Lingering(Meadow):
    """A meadow that takes nobody off its list; whoever has ended is not spoken of again."""

    def __init__(self, is_known: bool = True) -> None:
        super().__init__(alike=False, masks="info")
        if not is_known:
            del self.possible_agents

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        told = super().reset(seed, options)
        self.still_there = list(self.agents)
        return told

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents), (actions, self.agents)
        listed, self.agents = self.agents, self.still_there
        told = super().step({name: actions[name] for name in self.still_there})
        self.still_there = self.agents
        self.agents = listed + [name for name in told[0] if name not in listed]
        return told


class Round(AECEnv):  # type: ignore[type-arg]
    """Agents take turns; whoever is out of luck leaves the round. With `births`, `dee` joins it."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "round",
        "render_modes": [],
        "is_parallelizable": False,
    }

    def __init__(self, alike: bool = True, masks: str = "", births: bool = False) -> None:
        super().__init__()
        self.possible_agents, self.render_mode = NAMES[: 4 if births else 3], None
        self._alike, self._masks = alike, masks
        self._spaces = {
            name: spaces.Box(-1e6, 1e6, (3 if alike else 2 + k,), np.float64)
            for k, name in enumerate(self.possible_agents)
        }
        self._actions = {
            name: spaces.Discrete(4 if alike else 2 + k)
            for k, name in enumerate(self.possible_agents)
        }
        self.np_random = np.random.default_rng()

    def observation_space(self, agent: str) -> Any:
        return self._spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents[:3])
        self.time, self.sum = 0, float((options or {}).get("sum", 0.0))
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {name: {} for name in self.agents}
        self.agent_selection = self.agents[0]
        self._say()

    def _say(self) -> None:
        for name in self.agents:
            self.infos[name] = {"time": self.time}
            if self._masks:
                mask = np.ones(self._actions[name].n, np.int8)
                mask[self.time % len(mask)] = 0
                self.infos[name]["action_mask"] = mask

    def observe(self, agent: str) -> Any:
        seen = np.full(self._spaces[agent].shape, self.sum)
        seen[0], seen[1] = self.time, NAMES.index(agent)
        return seen

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self.time += 1
        self.sum += int(action) + 0.1 * self.np_random.normal()
        if self.time == 4 and "dee" in self._spaces:
            self._be_born("dee")
        self.rewards = {name: 0.1 * k for k, name in enumerate(self.agents)}
        self.rewards[agent] += self.sum
        if self.np_random.random() < 0.15:
            self.terminations[agent] = True
        if self.time >= 14:
            self.truncations = {name: not self.terminations[name] for name in self.agents}
        self._say()
        self.agent_selection = self._after(agent)
        self._accumulate_rewards()
        self._deads_step_first()

    def _be_born(self, name: str) -> None:
        self.agents.append(name)
        self._cumulative_rewards[name] = 0.0
        self.terminations[name] = self.truncations[name] = False
        self.infos[name] = {}

    def _after(self, agent: str) -> str:
        """Who is next of those who are still in; if nobody is, whoever there is."""
        at = self.agents.index(agent) + 1
        order = self.agents[at:] + self.agents[:at]
        living = [n for n in order if not (self.terminations[n] or self.truncations[n])]
        return (living or order)[0]

    def render(self) -> None:
        pass

    def close(self) -> None:
        pass
