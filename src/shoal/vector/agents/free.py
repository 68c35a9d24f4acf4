"""Agents whom nobody knows beforehand: environments without `possible_agents`.

What such agents see and do has no place in rows, since it may be of any shape: it travels beside
them, as Python objects. Everything else is as for agents that are known.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from shoal.engine.masks import sampled
from shoal.engine.retrace import number
from shoal.layout import Array
from shoal.vector.agents.acting import check_possible, idle
from shoal.vector.agents.cast import mask_of, num_choices
from shoal.vector.agents.inner import Inner, Roll


class Anything(spaces.Space[Any]):
    """Any object."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        """What stands for a choice of the environment's own."""
        return None

    def contains(self, x: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Anything)

    def __hash__(self) -> int:
        return hash(Anything)

    @property
    def is_np_flattenable(self) -> bool:
        return False


class Told(NamedTuple):
    """What a step tells a team, by agent."""

    observations: dict[Any, Any]
    rewards: dict[Any, Any]
    terminations: dict[Any, Any]
    truncations: dict[Any, Any]
    infos: dict[Any, Any]
    agents: list[Any]
    """Who may act next."""
    masks: dict[Any, Array]
    """What each of them may do, where there are choices."""


class Free(Inner):
    """Told and acted on by objects."""

    def __init__(self, env: Any) -> None:
        super().__init__(env, None)
        self.observation_space, self.action_space = Anything(), Anything()

    @property
    def known_agents(self) -> list[Any] | None:
        """All who may ever be there, if the environment says so."""
        known = getattr(self.env, "possible_agents", None)
        return None if known is None else list(known)

    def _possible(self, agent: Any, observation: Any, info: Any) -> Array | None:
        """What an agent may do; None where it has no choices."""
        count = num_choices(self.env.action_space(agent))
        if not count:
            return None
        mask = mask_of(observation, info, count)
        return np.ones(count, np.bool_) if mask is None else mask


class FreeTeam(Free):
    """A team; its action is a dict by agent, of all that live."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._roll, self._masks = Roll(), dict[Any, Array]()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._roll.begin()
        return self._told(self.env.agents, observations, infos), {}

    def step(self, actions: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        env = self.env
        observations, rewards, terminations, truncations, infos = env.step(self._chosen(actions))
        gains = {name: number(one) for name, one in rewards.items()}
        living = self._roll.living(env.agents, terminations, truncations)
        told = self._told(living, observations, infos)._replace(
            rewards=gains, terminations=dict(terminations), truncations=dict(truncations)
        )
        is_over, is_truncated = not living, any(truncations.values())
        gain = sum(gains.values(), 0.0)
        return told, gain, is_over and not is_truncated, is_over and is_truncated, {}

    def _chosen(self, actions: dict[Any, Any] | None) -> dict[Any, Any]:
        """The actions of all who are listed; those who have ended and still are do nothing."""
        env = self.env
        if actions is None:
            return {
                name: sampled(env.action_space(name), self._masks.get(name)) for name in env.agents
            }
        for name, action in actions.items():
            check_possible(name, env.action_space(name), action)
        ended = [name for name in env.agents if name not in actions]
        return actions | {name: idle(env.action_space(name)) for name in ended}

    def _told(self, living: list[Any], observations: Any, infos: Any) -> Told:
        self._masks = masks = {
            name: mask
            for name in living
            if (mask := self._possible(name, observations.get(name), infos.get(name))) is not None
        }
        return Told(dict(observations), {}, {}, {}, dict(infos), list(living), masks)


class FreeAlternating(Free):
    """Agents that take turns; its action is that of the agent whose turn it is."""

    takes_turns = True
    _any_truncated = False
    _mask: Array | None = None
    """What the agent whose turn it is may do."""
    _latest: tuple[Any, dict[str, Any]] = (None, {})
    """What the agent whose turn it is saw, and its info."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.env.reset(seed=seed, options=options)
        self._any_truncated = False
        told, info = self._look()
        return told, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        env = self.env
        agent = env.agent_selection
        if env.terminations[agent] or env.truncations[agent]:
            action = None
        elif action is None:
            action = sampled(env.action_space(agent), self._mask)
        else:
            check_possible(agent, env.action_space(agent), action)
        env.step(action)
        if not env.agents:
            seen, info = self._latest
            told = (None, seen, 0.0, False, False, None)  # a turn of nobody
            return told, 0.0, not self._any_truncated, self._any_truncated, info
        told, info = self._look()
        return told, told[2], False, False, info

    def _look(self) -> tuple[Any, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.last()
        self._any_truncated |= bool(truncated)
        agent = self.env.agent_selection
        mask = self._possible(agent, observation, info)
        if mask is not None and (terminated or truncated):
            mask[:] = False
        self._latest, self._mask = (observation, dict(info)), mask
        told = (agent, observation, number(reward), bool(terminated), bool(truncated), mask)
        return told, self._latest[1]

    def standing(self) -> dict[str, Any]:
        """What an `AECEnv` shows of itself."""
        shown = ("agents", "rewards", "terminations", "truncations", "infos", "_cumulative_rewards")
        told = {name: self.get_wrapper_attr(name) for name in shown}
        return told | {"agent_selection": self.env.agent_selection if told["agents"] else None}
