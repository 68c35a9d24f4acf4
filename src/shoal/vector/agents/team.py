"""Many environments of one team each, all of whose agents act at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector.utils import batch_space

from shoal.engine.batch import Batch
from shoal.errors import ContractError, shown, suggest
from shoal.layout import Array
from shoal.seeding import Seed
from shoal.vector.agents.delegate import Known
from shoal.vector.agents.together import ALIVE, TERMINATED, TRUNCATED
from shoal.vector.env import EnvIds, Options, VectorEnv

ByAgent = dict[Any, Any]


class TeamBatch(NamedTuple):
    """Results of some environments, by agent; row k of everything is `env_ids[k]`."""

    observations: ByAgent
    rewards: ByAgent
    terminations: ByAgent
    truncations: ByAgent
    infos: dict[str, Any]
    env_ids: Array


class TeamVectorEnv(Known):
    """Many environments of one team each. Made by `shoal.make_team`.

    What is given and returned is by agent, each an array `[num_envs, ...]`. An agent that is not
    there (dead, or not born yet) sees zeros, has a reward of 0 and no flags; `alive` tells.
    """

    alive: Array
    """`[num_envs, num_agents]`: who may act in the next step."""
    action_masks: Array | None
    """`[num_envs, num_agents, choices]`: what is possible for each; None without choices."""

    def __init__(self, below: VectorEnv) -> None:
        super().__init__(below)
        self._stacked: Any = None
        self.alive = np.zeros((self.num_envs, self.num_agents), np.bool_)
        self.action_masks = None

    def observation_space(self, agent: Any) -> Any:
        """What an agent sees in all environments."""
        return batch_space(self.single_observation_space(agent), self.num_envs)

    def action_space(self, agent: Any) -> Any:
        """What an agent does in all environments."""
        return batch_space(self.single_action_space(agent), self.num_envs)

    # --- all environments -------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[Seed] | None = None, options: Options = None
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`."""
        told, infos = self.below.reset(seed=seed, options=options)
        return self._see(told, None), infos

    def step(
        self, actions: Mapping[Any, Any]
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, dict[str, Any]]:
        """One step of every environment, from an array `[num_envs, ...]` for each agent."""
        return self._results(self._stepped(self._joined(actions)))[:5]

    def stacked(self) -> Any:
        """The latest observations of all, `[num_envs, num_agents, ...]`, if agents are alike."""
        if not self.cast.sees_alike:
            raise ContractError(
                "agents see different things, so that they cannot be stacked: "
                f"{dict(zip(self.cast.names, self.cast.observation_spaces, strict=True))}."
            )
        return self._stacked

    # --- some of them -----------------------------------------------------------------------

    def reset_envs(
        self,
        env_ids: Iterable[int],
        seeds: int | Sequence[Seed] | None = None,
        options: Options = None,
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Reset these environments now, each with its own seed and options (its own task)."""
        ids = list(env_ids)
        told, infos = self.below.reset_envs(ids, seeds, options)
        return self._see(told, ids), infos

    def send(self, actions: Mapping[Any, Any], env_ids: EnvIds = None) -> None:
        """Start a step of these environments (default: all) and return at once."""
        self.below.send(self._joined(actions), env_ids)

    def recv(self, min_envs: int | None = None, timeout_s: float | None = None) -> TeamBatch:
        """The environments that are ready, at least `min_envs` of them."""
        return self._results(self.below.recv(min_envs, timeout_s))

    def resize(
        self, num_envs: int | None = None, num_workers: int | None = None
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Have more or fewer environments and workers; what new ones begin with."""
        before = self.num_envs
        told, infos = self.below.resize(num_envs, num_workers)
        kept = min(before, self.num_envs)
        alive, masks = self.alive[:kept], self.action_masks
        self.alive = np.zeros((self.num_envs, self.num_agents), np.bool_)
        self.alive[:kept] = alive
        if masks is not None:
            self.action_masks = np.zeros((self.num_envs, *masks.shape[1:]), np.bool_)
            self.action_masks[:kept] = masks[:kept]
        return self._see(told, list(range(before, self.num_envs))), infos

    # --- inside -----------------------------------------------------------------------------

    def _joined(self, actions: Mapping[Any, Any]) -> Any:
        """Actions of all agents as the engine takes them; who is missing does nothing special."""
        cast = self.cast
        strangers = [name for name in actions if name not in cast.number]
        if strangers:
            raise ContractError(
                f"there are actions for {shown(strangers[0])}, who is none of the agents. "
                f"{suggest(str(strangers[0]), list(map(str, cast.names)))}"
            )
        missing = [name for name in cast.names if name not in actions]
        given = dict(actions)
        for name in missing:
            if self.alive[:, cast.number[name]].any():
                raise ContractError(f"there are no actions for {name!r}, who is alive.")
            given[name] = _nothing(self.single_action_space(name), self._count(actions))
        ordered = [given[name] for name in cast.names]
        return _stack(ordered) if cast.acts_alike else tuple(ordered)

    def _count(self, actions: Mapping[Any, Any]) -> int:
        first: Any = next(iter(actions.values()), None)
        while isinstance(first, dict | tuple):
            first = next(iter(first.values() if isinstance(first, dict) else first))
        return self.num_envs if first is None else len(first)

    def _see(self, told: Mapping[str, Any], env_ids: Any) -> ByAgent:
        """Take note of who lives and what is possible; what each agent sees."""
        rows = slice(None) if env_ids is None else env_ids
        self.alive[rows] = told["flags"][:, ALIVE]
        if "masks" in told:
            if self.action_masks is None:
                shape = (self.num_envs, *told["masks"].shape[1:])
                self.action_masks = np.zeros(shape, np.bool_)
            self.action_masks[rows] = told["masks"]
        seen = told["observations"]
        if self.cast.sees_alike:
            self._stacked = seen
        return self._by_agent(seen)

    def _by_agent(self, seen: Any) -> ByAgent:
        cast = self.cast
        return {name: cast.part(seen, k, cast.sees_alike) for name, k in cast.number.items()}

    def _results(self, batch: Batch) -> TeamBatch:
        told, infos = batch.observations, batch.infos
        rewards, flags = told["rewards"], told["flags"].astype(np.bool_)
        before = self.alive[batch.env_ids]
        if "final_obs" in infos:  # the episode is over, and what was told at its end is there
            for row in np.flatnonzero(infos["_final_obs"]):
                final = infos["final_obs"][row]
                rewards[row], flags[row, :ALIVE] = final["rewards"], final["flags"][:ALIVE]
                infos["final_obs"][row] = self._final(final)
        if "restarted" in infos:
            lost = infos["restarted"]
            rewards[lost], flags[lost, TERMINATED] = 0.0, False
            flags[lost, TRUNCATED] = before[lost]
        observations = self._see(told, batch.env_ids)
        return TeamBatch(
            observations,
            self._columns(rewards),
            self._columns(flags[:, TERMINATED]),
            self._columns(flags[:, TRUNCATED]),
            infos,
            batch.env_ids,
        )

    def _final(self, final: Mapping[str, Any]) -> ByAgent:
        """What each agent saw last, of one environment."""
        seen, cast = final["observations"], self.cast
        if not cast.sees_alike:
            return dict(zip(cast.names, seen, strict=True))
        return {name: _row(seen, k) for name, k in cast.number.items()}

    def _columns(self, values: Array) -> ByAgent:
        return {name: values[:, k] for name, k in self.cast.number.items()}


def _row(values: Any, k: int) -> Any:
    if isinstance(values, dict):
        return {key: _row(one, k) for key, one in values.items()}
    return tuple(_row(one, k) for one in values) if isinstance(values, tuple) else values[k]


def _stack(each: Sequence[Any]) -> Any:
    """Batches of each agent as one batch `[num_envs, num_agents, ...]`."""
    first = each[0]
    if isinstance(first, dict):
        return {key: _stack([one[key] for one in each]) for key in first}
    if isinstance(first, tuple):
        return tuple(map(_stack, zip(*each, strict=True)))
    return np.stack(list(map(np.asarray, each)), axis=1)


def _nothing(space: Any, count: int) -> Any:
    """Actions that nobody looks at."""
    from gymnasium.vector.utils import create_empty_array

    return create_empty_array(space, count)
