"""Agents that take turns: a PettingZoo `AECEnv` as the environment that the engine steps.

An observation of it is what `last()` tells the agent whose turn it is. A turn of an agent that has
ended is shown like any other, since it brings that agent's last reward; whatever is chosen for it,
PettingZoo's `None` is what it does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.engine.masks import sampled
from shoal.engine.retrace import number
from shoal.layout import Layout
from shoal.vector.agents.cast import Cast, mask_of, num_choices
from shoal.vector.agents.inner import Inner
from shoal.vector.agents.views import View, view_of

NOBODY = -1
"""The number of the agent whose turn it is when an episode is over."""


class Alternating(Inner):
    """One turn after the other."""

    takes_turns = True

    def __init__(self, env: Any) -> None:
        self.cast = Cast.of(env)
        super().__init__(env, self.cast)
        self.action_space = (
            self.cast.action_spaces[0]
            if self.cast.acts_alike
            else spaces.Tuple(self.cast.action_spaces)
        )
        self._agent, self._reward = np.zeros((), np.int64), np.zeros((), np.float64)
        self._flags, self._mask = np.zeros(2, np.int8), np.zeros(self.cast.num_choices, np.int8)
        self._counts = [num_choices(space) for space in self.cast.action_spaces]
        self._number, self._has_ended, self._any_truncated = NOBODY, False, False
        self._info: dict[str, Any] = {}
        self._given: tuple[int, Any] | None = None
        """An agent, and what it saw in numbers of another kind: the engine is to tell of it."""
        self._shown = 0
        """Whose observation is in its view; those of others are zeros."""
        self._views = self._make_views()
        self.observation_space = self._space()
        has_objects = any(Layout(space).has_objects for space in self.cast.observation_spaces)
        self._constant = None if has_objects else self._told()

    def _make_views(self) -> list[View]:
        cast = self.cast
        if cast.sees_alike:
            return [view_of(cast.names[0], cast.observation_spaces[0])] * len(cast)
        return [view_of(*one) for one in zip(cast.names, cast.observation_spaces, strict=True)]

    def _space(self) -> spaces.Dict:
        cast = self.cast
        seen = cast.observation_spaces
        members: dict[str, spaces.Space[Any]] = {
            "agent": spaces.Box(NOBODY, len(cast) - 1, (), np.int64),
            "observation": seen[0] if cast.sees_alike else spaces.Tuple(seen),
            "reward": spaces.Box(-np.inf, np.inf, (), np.float64),
            "flags": spaces.MultiBinary(2),
        }
        if cast.num_choices:
            members["mask"] = spaces.MultiBinary(cast.num_choices)
        return spaces.Dict(members)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.env.reset(seed=seed, options=options)
        self._any_truncated = False
        info = self._look()
        return self._value(), info

    def step(self, actions: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # Whose turn it is was looked up before: wrappers make every look at an environment dear.
        if self._has_ended:
            action = None
        else:
            action = actions if self.cast.acts_alike else actions[self._number]
        env = self.env
        env.step(action)
        if env.agents:
            info = self._look()
            return self._value(), float(self._reward), False, False, info
        self._number = NOBODY
        self._agent[...], self._reward[...], self._flags[:], self._mask[:] = NOBODY, 0.0, 0, 0
        # What the last turn has shown stands: it is what the episode has ended with.
        told = self._constant or self._told()
        return told, 0.0, not self._any_truncated, self._any_truncated, self._info

    def sample_possible(self) -> Any:
        """An action that is possible for the agent whose turn it is."""
        k, each = self._number, self.cast.action_spaces
        mask = self._mask[: self._counts[k]] if self._counts[k] else None
        if self.cast.acts_alike:
            return sampled(each[0], mask)
        return tuple(sampled(space, mask if j == k else None) for j, space in enumerate(each))

    def _look(self) -> dict[str, Any]:
        """Write down what the agent whose turn it is is told; its info."""
        observation, reward, terminated, truncated, info = self.env.last()
        k = self.cast.numbered(self.env.agent_selection)
        if not self.cast.sees_alike and k != self._shown:
            self._views[self._shown].clear()
        self._shown = k
        self._number, self._has_ended = k, bool(terminated or truncated)
        self._agent[...], self._reward[...] = k, number(reward)
        self._flags[:] = terminated, truncated
        self._any_truncated |= bool(truncated)
        self._views[k].write(observation)
        if self._views[k].is_cast:
            self._views[k].is_cast, self._given = False, (k, observation)
        count = self._counts[k]
        if count and not self._has_ended:
            mask = mask_of(observation, info, count)
            self._mask[:count] = 1 if mask is None else mask
            self._mask[count:] = 0
        else:
            self._mask[:] = 0
        self._info = dict(info)
        return self._info

    def _value(self) -> dict[str, Any]:
        if self._given is None:
            return self._constant or self._told()
        (k, observation), self._given = self._given, None
        given = self._views[k].as_given(observation)
        if not self.cast.sees_alike:
            each = enumerate(self._views)
            given = tuple(given if j == k else view.value for j, view in each)
        return self._told() | {"observation": given}

    def _told(self) -> dict[str, Any]:
        views = self._views
        alike = self.cast.sees_alike
        told = {
            "agent": self._agent,
            "observation": views[0].value if alike else tuple(view.value for view in views),
            "reward": self._reward,
            "flags": self._flags,
        }
        return told | {"mask": self._mask} if self.cast.num_choices else told
