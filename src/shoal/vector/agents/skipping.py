"""A team some of whose agents do nothing in a step, although they are there.

That is how AgileRL treats an agent whose action is NaN: its environment is not told of any. A None
among infos is NaN to AgileRL as well, so that a number may stand in its place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.errors import ConfigError
from shoal.vector.agents.make import at_once
from shoal.vector.agents.together import Team


class SkippingTeam(Team):
    """Its action is that of a team, and who does anything."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        acts = spaces.MultiBinary(len(self.cast))
        self.action_space = spaces.Tuple((self.cast.action_space, acts))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        told, infos = super().reset(seed=seed, options=options)
        return told, self._in_numbers(infos)

    def step(self, actions: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *told, infos = super().step(actions)
        return *told, self._in_numbers(infos)

    def _chosen(self, actions: Any) -> dict[Any, Any]:
        what, acts = actions
        chosen = super()._chosen(what)
        if 0 not in acts.tobytes():  # 2 us less than acts.all(), at every step
            return chosen
        number = self.cast.number
        return {name: action for name, action in chosen.items() if acts[number[name]]}

    def _in_numbers(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Infos of those who are known, with NaN for None."""
        if not infos:
            return infos
        return {
            name: {key: np.nan if one is None else one for key, one in info.items()}
            for name, info in infos.items()
            if name in self.cast.number
        }


def as_skipping_team(env: Any) -> SkippingTeam:
    """A PettingZoo environment as the engine steps it for AgileRL."""
    if not hasattr(env, "possible_agents"):
        raise ConfigError(
            f"{env} has no possible_agents, which AgileRL must know. Use shoal.make_team."
        )
    return SkippingTeam(at_once(env))
