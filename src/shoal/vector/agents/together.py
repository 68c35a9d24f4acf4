"""A team in one environment: a PettingZoo `ParallelEnv` as the environment that the engine steps.

An observation of it is everything that its agents are told: what they see, their rewards, who has
ended and who lives, and what each may do. So an episode of a team is recorded, replayed, ended and
begun by the same code as every other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import iterate

from shoal.vector.agents.cast import Cast, mask_of, num_choices
from shoal.vector.agents.inner import Inner
from shoal.vector.agents.views import Stacked

TERMINATED, TRUNCATED, ALIVE, PRESENT = range(4)
"""Rows of `flags`: who has ended in this step and how, who may act next, and who is told of it."""


class Team(Inner):
    """All agents at once. Its action is one for each agent; those of the dead are not looked at."""

    def __init__(self, env: Any) -> None:
        self.cast = Cast.of(env)
        super().__init__(env, self.cast)
        self.action_space = self.cast.action_space
        self._told = Told(self.cast)
        self.observation_space = self._told.space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._told.clear()
        self._tell(observations, infos)
        return self._told.value, named(infos)

    def step(self, actions: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        told, living = self._told, set(self.env.agents)
        chosen = {
            name: action
            for name, action in zip(self.cast.names, self._each(actions), strict=True)
            if name in living
        }
        observations, rewards, terminations, truncations, infos = self.env.step(chosen)
        told.clear()
        self._tell(observations, infos)
        told.reward(rewards)
        told.flag(TERMINATED, terminations)
        truncated = told.flag(TRUNCATED, truncations)
        is_over = not self.env.agents
        is_truncated = is_over and truncated
        gain = float(sum(rewards.values()))
        return told.value, gain, is_over and not is_truncated, is_truncated, named(infos)

    def _tell(self, observations: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        for name in self.env.agents:
            self._told.flags[ALIVE, self.cast.numbered(name)] = True
        for name, observation in observations.items():
            if name in self.cast.number:  # others are allowed, and nobody's
                self._told.tell(name, observation, infos.get(name))
        self._told.close()

    def _each(self, actions: Any) -> Any:
        return iterate(self.action_space, actions) if self.cast.acts_alike else actions


class Told:
    """What the agents of one environment are told, in arrays that are used again and again."""

    def __init__(self, cast: Cast) -> None:
        self._cast, count = cast, len(cast)
        self.rewards = np.zeros(count, np.float64)
        self.flags = np.zeros((4, count), np.int8)
        self.masks = np.zeros((count, cast.num_choices), np.int8)
        self._views = Stacked(cast)
        self._seen: set[int] = set()
        self._before: set[int] = set()
        members: dict[str, spaces.Space[Any]] = {
            "observations": cast.observation_space,
            "rewards": spaces.Box(-np.inf, np.inf, (count,), np.float64),
            "flags": spaces.MultiBinary(self.flags.shape),
        }
        if cast.num_choices:
            members["masks"] = spaces.MultiBinary(self.masks.shape)
        self.space = spaces.Dict(members)

    @property
    def value(self) -> dict[str, Any]:
        """As the space has it."""
        told = {"observations": self._views.value, "rewards": self.rewards, "flags": self.flags}
        return told | {"masks": self.masks} if self._cast.num_choices else told

    def clear(self) -> None:
        """A new step: nobody has been told anything."""
        self.rewards[:], self.flags[:], self.masks[:] = 0.0, 0, 0
        self._before, self._seen = self._seen, set()

    def tell(self, name: Any, observation: Any, info: Any) -> None:
        """What an agent sees, and may do if it is to act."""
        k = self._cast.number[name]
        self._views.each[k].write(observation)
        self._seen.add(k)
        self._before.discard(k)
        self.flags[PRESENT, k] = True
        count = num_choices(self._cast.action_spaces[k])
        if count and self.flags[ALIVE, k]:
            self.masks[k, :count] = mask_of(observation, info, count)

    def close(self) -> None:
        """All have been told: what others saw before is gone."""
        for k in self._before:
            self._views.each[k].clear()

    def reward(self, rewards: Mapping[Any, Any]) -> None:
        for name, reward in rewards.items():
            if name in self._cast.number:
                self.rewards[self._cast.number[name]] = reward

    def flag(self, which: int, who: Mapping[Any, Any]) -> bool:
        """Write down to whom this happened; whether it did to anybody."""
        found = [name for name, is_so in who.items() if is_so and name in self._cast.number]
        for name in found:
            self.flags[which, self._cast.number[name]] = True
        return bool(found)


def named(infos: Mapping[Any, Any]) -> dict[str, Any]:
    """Infos by agent, of those that have any."""
    return {name: dict(info) for name, info in infos.items() if info}
