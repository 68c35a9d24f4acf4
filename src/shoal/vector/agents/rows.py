"""A team as independent rows: each agent of each environment by itself, for single-agent learners.

Row `i * num_agents + k` is agent k of environment i. To a learner that knows nothing of teams these
are so many environments of one agent each, which share a policy by sharing the learner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from shoal.errors import ConfigError, ContractError, shown
from shoal.layout import Array, Layout
from shoal.seeding import Seed, seeds_of
from shoal.vector.agents.team import TeamVectorEnv
from shoal.vector.env import check_reset_mask

PRESENT = "present"
"""The info that tells which rows are agents who are there: who was before the step, in a step."""
_ENDS = ("final_obs", "final_info")


def rows_of_team(envs: TeamVectorEnv) -> TeamRows:
    """Each agent as an environment of its own; `envs` reset in the same step."""
    return TeamRows(envs)


class TeamRows(VectorEnv[Any, Any, Any]):
    """Agents of a team, all of whom see and do the same, as environments of one agent each.

    An agent that has died sees zeros and gets nothing until its team begins anew;
    `infos["present"]` says which rows are steps that somebody took. In the step in which an agent
    ends while its team goes on, what it sees is what it saw last, and so is `final_obs`.
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
        self.envs, self.copy = envs, envs.below.copy
        self.num_envs = envs.num_envs * envs.num_agents
        self.single_observation_space = cast.observation_spaces[0]
        self.single_action_space = cast.action_spaces[0]
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.metadata = {**envs.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = envs.render_mode
        self._layout, self._does = Layout(cast.observation_spaces[0]), Layout(cast.action_spaces[0])

    def reset(
        self, *, seed: int | Sequence[Seed] | None = None, options: Any = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all teams, or those in `options["reset_mask"]`: all rows of a team, or none.

        Row i has the seed `seed + i`, as everywhere, and its entry of a list of options; a team is
        given those of its first agent.
        """
        if isinstance(options, Mapping) and "reset_mask" in options:
            options = {**options, "reset_mask": self._teams_in(options["reset_mask"])}
        elif isinstance(options, Sequence):
            options = self._of_teams(options)
        seeds = None if seed is None else seeds_of(seed, self.num_envs)[:: self.envs.num_agents]
        _, infos = self.envs.reset(seed=seeds, options=options)
        return self._seen(), self._told(infos, self.envs.alive)

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """One step of all; what is given for an agent that is not there is not looked at."""
        envs, present = self.envs, self.envs.alive
        seen, rewards, terminations, truncations, infos = envs.step(self._by_agent(actions))
        ended = _rows(terminations), _rows(truncations)
        told = self._told(infos, present)
        over = np.flatnonzero(ended[0] | ended[1])
        if len(over):
            self._add_finals(told, over, seen, infos)
        return self._seen(), _rows(rewards), *ended, told

    def render(self) -> tuple[Any, ...]:
        """One frame per row: that of its team."""
        return tuple(frame for frame in self.envs.render() for _ in self.envs.possible_agents)

    def close_extras(self, **kwargs: Any) -> None:
        self.envs.close()

    # --- inside -----------------------------------------------------------------------------

    def _of_teams(self, options: Sequence[Any]) -> Sequence[Any]:
        if len(options) != self.num_envs:
            raise ContractError(
                f"options holds {len(options)} entries; expected {self.num_envs}, one for each row."
            )
        return options[:: self.envs.num_agents]

    def _teams_in(self, mask: Any) -> Array:
        by_team = check_reset_mask(mask, self.num_envs).reshape(self.envs.num_envs, -1)
        whole = np.all(by_team, axis=1)
        parts = np.flatnonzero(np.any(by_team, axis=1) & ~whole)
        if len(parts):
            first = int(parts[0]) * self.envs.num_agents
            raise ContractError(
                f"options['reset_mask'] holds some of the rows {first} to "
                f"{first + self.envs.num_agents - 1}, which are agents of one team, and not all: "
                "a team begins anew as a whole. Set all of them, or none."
            )
        return np.asarray(whole)

    def _by_agent(self, actions: Any) -> dict[Any, Any]:
        names = self.envs.possible_agents
        leaves = [
            self._counted(leaf).reshape(self.envs.num_envs, len(names), *np.shape(leaf)[1:])
            for leaf in self._does.take_apart(actions, "actions")
        ]
        return {
            name: self._does.assemble([leaf[:, k] for leaf in leaves])
            for k, name in enumerate(names)
        }

    def _counted(self, leaf: Any) -> Array:
        array = np.asarray(leaf)
        if array.ndim == 0 or len(array) != self.num_envs:
            raise ContractError(
                f"actions are {shown(leaf)}; expected {self.num_envs}, one for each row."
            )
        return array

    def _seen(self) -> Any:
        leaves = self._layout.take_apart(self.envs.stacked())
        return self._layout.assemble([leaf.reshape(-1, *leaf.shape[2:]) for leaf in leaves])

    def _told(self, infos: Mapping[str, Any], present: Array) -> dict[str, Any]:
        """What the agents are told in infos, and which rows are there."""
        told = self._spread({key: one for key, one in infos.items() if key not in _ENDS})
        told[PRESENT] = present.reshape(-1).copy()
        told[f"_{PRESENT}"] = np.ones(self.num_envs, np.bool_)
        return told

    def _spread(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Infos of teams as infos of rows: each agent's own, and what is said of a team to all."""
        names, nothing = self.envs.possible_agents, dict[str, Any]()
        own = _interleaved([infos.get(name, nothing) for name in names], self.envs.num_envs)
        ours = {
            key: one for key, one in infos.items() if key not in names and not _is_mask(key, infos)
        }
        masks = {f"_{key}": infos[f"_{key}"] for key in ours if f"_{key}" in infos}
        return own | _interleaved([ours | masks] * len(names), self.envs.num_envs)

    def _add_finals(
        self, told: dict[str, Any], over: Array, seen: Any, infos: dict[str, Any]
    ) -> None:
        """What these rows saw last and were told; with the end of a team, that is apart."""
        names, finals = self.envs.possible_agents, infos.get("final_obs")
        at_end = self._spread(infos.get("final_info", {}))
        marks = np.isin(np.arange(self.num_envs), over)
        last, last_info = np.full(self.num_envs, None, dtype=object), dict[str, Any]()
        for row in over.tolist():
            env_id, k = divmod(row, len(names))
            final = None if finals is None else finals[env_id]
            last[row] = self._row(seen[names[k]], env_id) if final is None else final[names[k]]
            own = of_row(told if final is None else at_end, row)
            own.pop(PRESENT, None)
            last_info = self._add_info(last_info, own, row)
        told |= {"final_obs": last, "_final_obs": marks}
        told |= {"final_info": last_info, "_final_info": marks.copy()}

    def _row(self, batch: Any, env_id: int) -> Any:
        leaves = self._layout.take_apart(batch)
        return self._layout.assemble([leaf[env_id].copy() for leaf in leaves])


def _rows(by_agent: dict[Any, Array]) -> Array:
    return np.stack(list(by_agent.values()), axis=1).reshape(-1)


def _is_mask(key: Any, infos: Mapping[Any, Any]) -> bool:
    return isinstance(key, str) and key.startswith("_") and key[1:] in infos


def _interleaved(each: Sequence[Mapping[str, Any]], num_teams: int) -> dict[str, Any]:
    """Infos of all agents, `[num_teams]` each, as infos of rows."""
    keys = dict.fromkeys(key for one in each for key in one if not _is_mask(key, one))
    infos: dict[str, Any] = {}
    for key in keys:
        has_it = np.zeros((num_teams, len(each)), np.bool_)
        for k, one in enumerate(each):
            if key in one:
                has_it[:, k] = one.get(f"_{key}", True)
        given = [one.get(key) for one in each]
        if any(isinstance(one, dict) for one in given):
            parts = [one if isinstance(one, dict) else {} for one in given]
            infos[key] = _interleaved(parts, num_teams)
        else:
            infos[key] = _columns(given, num_teams)
        infos[f"_{key}"] = has_it.reshape(-1)
    return infos


def _columns(given: Sequence[Any], num_teams: int) -> Array:
    """Arrays of agents side by side; as objects where they are not alike."""
    first = next(one for one in given if one is not None)
    is_alike = all(
        one is None or (one.dtype == first.dtype and one.shape == first.shape) for one in given
    )
    shape, dtype = (first.shape[1:], first.dtype) if is_alike else ((), np.dtype(object))
    nothing = None if dtype.kind == "O" else 0
    values = np.full((num_teams, len(given), *shape), nothing, dtype)
    for k, one in enumerate(given):
        if one is not None and is_alike:
            values[:, k] = one
        elif one is not None:
            for env_id in range(num_teams):
                values[env_id, k] = one[env_id]
    return values.reshape(-1, *shape)


def of_row(infos: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The info of one row."""
    return {
        key: of_row(one, row) if isinstance(one, dict) else one[row]
        for key, one in infos.items()
        if not _is_mask(key, infos) and infos[f"_{key}"][row]
    }
