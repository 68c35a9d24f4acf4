"""A team as independent rows: each agent of each environment by itself, for single-agent learners.

Row `i * num_agents + k` is agent k of environment i. To a learner that knows nothing of teams these
are so many environments of one agent each, which share a policy by sharing the learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from shoal.errors import ConfigError, shown
from shoal.layout import Array, Layout
from shoal.vector.agents.team import TeamVectorEnv

PRESENT = "present"
"""The info that tells which rows are agents who are there: who was before the step, in a step."""


def rows_of_team(envs: TeamVectorEnv) -> TeamRows:
    """Each agent as an environment of its own; `envs` reset in the same step."""
    return TeamRows(envs)


class TeamRows(VectorEnv[Any, Any, Any]):
    """Agents of a team, all of whom see and do the same, as environments of one agent each.

    An agent that has died sees zeros and gets nothing until its team begins anew;
    `infos["present"]` says which rows are steps that somebody took.
    """

    def __init__(self, envs: TeamVectorEnv) -> None:
        cast = envs.cast
        if not (cast.sees_alike and cast.acts_alike):
            raise ConfigError(
                "agents that see or do different things are no rows of one kind: they see "
                f"{shown(cast.observation_spaces)} and do {shown(cast.action_spaces)}. Use the "
                "team itself, or wrap it so that they are alike."
            )
        if envs.below.metadata.get("autoreset_mode") is not AutoresetMode.SAME_STEP:
            raise ConfigError(
                "rows of a team need one that resets in the same step, since agents end at "
                'different times: make_team(..., autoreset="same_step").'
            )
        self.envs, self._layout = envs, Layout(cast.observation_spaces[0])
        self.num_envs = envs.num_envs * envs.num_agents
        self.single_observation_space = cast.observation_spaces[0]
        self.single_action_space = cast.action_spaces[0]
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {**envs.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = envs.render_mode

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all teams; seeds are theirs, not those of rows."""
        self.envs.reset(seed=seed, options=options)
        return self._seen(), {PRESENT: self.envs.alive.reshape(-1).copy()}

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """One step of all; what is given for an agent that is not there is not looked at."""
        envs, present = self.envs, self.envs.alive
        told = self._by_agent(actions)
        seen, rewards, terminations, truncations, infos = envs.step(told)
        ended = _rows(terminations), _rows(truncations)
        told_infos: dict[str, Any] = {PRESENT: present.reshape(-1)}
        over = np.flatnonzero(ended[0] | ended[1])
        if len(over):
            told_infos |= self._finals(over, seen, infos)
        return self._seen(), _rows(rewards), *ended, told_infos

    def _by_agent(self, actions: Any) -> dict[Any, Any]:
        layout, names = Layout(self.single_action_space), self.envs.possible_agents
        leaves = [
            np.asarray(leaf).reshape(self.envs.num_envs, len(names), *np.shape(leaf)[1:])
            for leaf in layout.take_apart(actions)
        ]
        return {
            name: layout.assemble([leaf[:, k] for leaf in leaves]) for k, name in enumerate(names)
        }

    def _seen(self) -> Any:
        leaves = self._layout.take_apart(self.envs.stacked())
        return self._layout.assemble([leaf.reshape(-1, *leaf.shape[2:]) for leaf in leaves])

    def _finals(self, over: Array, seen: Any, infos: dict[str, Any]) -> dict[str, Any]:
        """What these rows saw last: with the end of their team, that is beside what they see."""
        names, finals = self.envs.possible_agents, infos.get("final_obs")
        found = np.full(self.num_envs, None, dtype=object)
        for row in over.tolist():
            env_id, k = divmod(row, len(names))
            final = None if finals is None else finals[env_id]
            found[row] = self._row(seen[names[k]], env_id) if final is None else final[names[k]]
        return {"final_obs": found, "_final_obs": np.isin(np.arange(self.num_envs), over)}

    def _row(self, batch: Any, env_id: int) -> Any:
        leaves = self._layout.take_apart(batch)
        return self._layout.assemble([leaf[env_id].copy() for leaf in leaves])

    def render(self) -> tuple[Any, ...]:
        """One frame per team."""
        return self.envs.render()

    def close_extras(self, **kwargs: Any) -> None:
        self.envs.close()


def _rows(by_agent: dict[Any, Array]) -> Array:
    return np.stack(list(by_agent.values()), axis=1).reshape(-1)
