"""Many environments whose agents nobody knows beforehand: a team at once, or one after the other.

What such agents see and do is of any kind, so that a batch of it is an array of objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.engine.batch import Batch
from shoal.errors import ContractError, shown
from shoal.layout import Array
from shoal.seeding import Seed
from shoal.vector.agents.acting import check_known, listed
from shoal.vector.agents.alternating import NOBODY
from shoal.vector.agents.delegate import Delegate
from shoal.vector.agents.free import Told
from shoal.vector.agents.reading import ByAgent, TeamBatch
from shoal.vector.agents.turns import Turn, noted_ends, resized, told_of_losses
from shoal.vector.env import EnvIds, Options, VectorEnv


class FreeTeamVectorEnv(Delegate):
    """Many environments of one team each; results are by agent, of those who are anywhere now.

    Observations are arrays of objects, None where there is no such agent.
    """

    def __init__(self, below: VectorEnv) -> None:
        super().__init__(below)
        self.agents: list[list[Any]] = [[] for _ in range(self.num_envs)]
        """Who may act in the next step, of each environment."""
        self.action_masks: list[dict[Any, Array]] = [{} for _ in range(self.num_envs)]
        """What each of them may do, where there are choices."""
        self._known: dict[Any, None] = {}
        """All who were there once."""

    def reset(
        self, *, seed: int | Sequence[Seed] | None = None, options: Options = None
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Reset all environments, or those in `options["reset_mask"]`."""
        told, _ = self.below.reset(seed=seed, options=options)
        batch = self._read(told, range(self.num_envs))
        return batch.observations, batch.infos

    def reset_envs(
        self,
        env_ids: Iterable[int],
        seeds: int | Sequence[Seed] | None = None,
        options: Options = None,
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Reset these environments now, each with its own seed and options (its own task)."""
        ids = list(env_ids)
        batch = self._read(self.below.reset_envs(ids, seeds, options)[0], ids)
        return batch.observations, batch.infos

    def step(
        self, actions: Mapping[Any, Any]
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, dict[str, Any]]:
        """One step of every environment, from `[num_envs]` actions for each agent who is alive."""
        return self._results(self._stepped(self._each(actions, range(self.num_envs))))[:5]

    def send(self, actions: Mapping[Any, Any], env_ids: EnvIds = None) -> None:
        """Start a step of these environments (default: all) and return at once."""
        ids = list(range(self.num_envs)) if env_ids is None else self.below._ids(env_ids)
        self.below.send(self._each(actions, ids), ids)

    def recv(self, min_envs: int | None = None, timeout_s: float | None = None) -> TeamBatch:
        """The environments that are ready, at least `min_envs` of them."""
        return self._results(self.below.recv(min_envs, timeout_s))

    def resize(
        self, num_envs: int | None = None, num_workers: int | None = None
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Have more or fewer environments and workers; what new ones begin with."""
        before = self.num_envs
        told, _ = self.below.resize(num_envs, num_workers)
        count = self.num_envs
        self.agents = (self.agents + [[] for _ in range(count)])[:count]
        self.action_masks = (self.action_masks + [{} for _ in range(count)])[:count]
        batch = self._read(told, range(before, count))
        return batch.observations, batch.infos

    def branch(self, env_id: int, into_ids: Iterable[int]) -> None:
        """Make other environments continue from the exact state of this one."""
        into = list(into_ids)
        super().branch(env_id, into)
        for other in into:
            self.agents[other] = list(self.agents[env_id])
            self.action_masks[other] = dict(self.action_masks[env_id])

    def _each(
        self, actions: Mapping[Any, Any], env_ids: Sequence[int]
    ) -> tuple[dict[Any, Any], ...]:
        """The actions of each environment, of those who are alive there."""
        count = len(env_ids)
        if not isinstance(actions, Mapping):
            raise ContractError(
                f"actions are {shown(actions)}; expected a dict by agent, with {count} rows for "
                "each who is alive."
            )
        check_known(actions, self._known)
        rows = {name: listed(given, count, repr(name)) for name, given in actions.items()}
        return tuple(
            {name: self._action(rows, name, k, env_id) for name in self.agents[env_id]}
            for k, env_id in enumerate(env_ids)
        )

    def _action(self, rows: Mapping[Any, Sequence[Any]], name: Any, k: int, env_id: int) -> Any:
        if name not in rows:
            raise ContractError(f"there are no actions for {name!r}, who is alive.")
        if rows[name][k] is None:
            raise ContractError(
                f"the action of {name!r} in env {env_id} is None, and it is alive there."
            )
        return rows[name][k]

    def _results(self, batch: Batch) -> TeamBatch:
        told, infos = list(batch.observations), batch.infos
        for row in np.flatnonzero(infos.get("_final_obs", ())):
            final, begun = infos["final_obs"][row], told[row]
            infos["final_obs"][row] = final.observations
            told[row] = final._replace(
                observations=begun.observations,
                infos=begun.infos,
                agents=begun.agents,
                masks=begun.masks,
            )
        lost = infos.get("restarted", np.zeros(len(told), np.bool_))
        for row in np.flatnonzero(lost):
            who = self.agents[batch.env_ids[row]]
            told[row] = told[row]._replace(
                rewards=dict.fromkeys(who, 0.0),
                terminations={},
                truncations=dict.fromkeys(who, True),
            )
        found = self._read(told, batch.env_ids)
        return found._replace(infos=infos | found.infos, env_ids=batch.env_ids)

    def _read(self, told: Sequence[Told], env_ids: Sequence[int] | Array) -> TeamBatch:
        """By agent; and take note of who lives."""
        names = list(dict.fromkeys(name for one in told for part in one[:4] for name in part))
        for env_id, one in zip(env_ids, told, strict=True):
            self.agents[env_id], self.action_masks[env_id] = one.agents, one.masks
            self._known |= dict.fromkeys(one.agents)
        return TeamBatch(
            {name: _objects([one.observations.get(name) for one in told]) for name in names},
            {name: np.array([float(one.rewards.get(name, 0)) for one in told]) for name in names},
            {name: np.array([bool(one.terminations.get(name)) for one in told]) for name in names},
            {name: np.array([bool(one.truncations.get(name)) for one in told]) for name in names},
            {name: _objects([one.infos.get(name) for one in told]) for name in names},
            np.asarray(env_ids),
        )


def _objects(each: Sequence[Any]) -> Array:
    found = np.full(len(each), None, dtype=object)
    for k, one in enumerate(each):
        found[k] = one
    return found


class FreeTurnVectorEnv(Delegate):
    """Many environments in which agents take turns; `possible_agents` are those seen so far."""

    def __init__(self, below: VectorEnv) -> None:
        super().__init__(below)
        self.possible_agents: list[Any] = []
        self.ended = np.zeros(self.num_envs, np.bool_)
        self.env_ids = np.arange(self.num_envs)
        self._on_turn = np.full(self.num_envs, NOBODY)

    def reset(self, *, seed: int | Sequence[Seed] | None = None, options: Options = None) -> Turn:
        """Reset all environments, or those in `options["reset_mask"]`; the first turns."""
        return self._turn(*self.below.reset(seed=seed, options=options))

    def reset_envs(
        self,
        env_ids: Iterable[int],
        seeds: int | Sequence[Seed] | None = None,
        options: Options = None,
    ) -> Turn:
        """Reset these environments now, each with its own seed and options (its own task)."""
        ids = list(env_ids)
        return self._turn(*self.below.reset_envs(ids, seeds, options), ids)

    def step(self, actions: Sequence[Any]) -> Turn:
        """One action in every environment, of the agent whose turn it is; the next turns."""
        return self._results(self._stepped(self._each(actions, range(self.num_envs))))

    def send(self, actions: Sequence[Any], env_ids: EnvIds = None) -> None:
        """Start a step of these environments (default: all) and return at once."""
        ids = list(range(self.num_envs)) if env_ids is None else self.below._ids(env_ids)
        self.below.send(self._each(actions, ids), ids)

    def recv(self, min_envs: int | None = None, timeout_s: float | None = None) -> Turn:
        """The environments that are ready, at least `min_envs`; `env_ids` tells which."""
        return self._results(self.below.recv(min_envs, timeout_s))

    def resize(self, num_envs: int | None = None, num_workers: int | None = None) -> Turn:
        """Have more or fewer environments and workers; the first turns of new ones."""
        before = self.num_envs
        told, infos = self.below.resize(num_envs, num_workers)
        self.ended = resized(self.ended, self.num_envs)
        self._on_turn = resized(self._on_turn, self.num_envs)
        return self._turn(told, infos, range(before, self.num_envs))

    def branch(self, env_id: int, into_ids: Iterable[int]) -> None:
        """Make other environments continue from the exact state of this one."""
        into = list(into_ids)
        super().branch(env_id, into)
        self._on_turn[into] = self._on_turn[env_id]

    def _each(self, actions: Sequence[Any], env_ids: Sequence[int]) -> tuple[Any, ...]:
        """The action of each environment; of agents that have ended there may be any, or None."""
        rows = tuple(listed(actions, len(env_ids), "agents on turn"))
        for env_id, action in zip(env_ids, rows, strict=True):
            on_turn = self._on_turn[env_id]
            if action is None and on_turn >= 0:
                raise ContractError(
                    f"the action in env {env_id} is None, and it is the turn of "
                    f"{self.possible_agents[on_turn]!r}, who is alive."
                )
        return rows

    def _results(self, batch: Batch) -> Turn:
        infos, self.env_ids = batch.infos, batch.env_ids
        self.ended = noted_ends(self.ended, batch)
        for row in np.flatnonzero(infos.get("_final_obs", ())):
            final = infos["final_obs"][row]
            infos["final_obs"][row] = None if final is None else final[1]
        return self._turn(batch.observations, infos, batch.env_ids)

    def _turn(self, told: Sequence[Any], infos: dict[str, Any], env_ids: Any = slice(None)) -> Turn:
        count = len(told)
        agents, rewards = np.full(count, -1), np.zeros(count)
        flags = np.zeros((2, count), np.bool_)
        seen, masks = np.full(count, None, dtype=object), np.full(count, None, dtype=object)
        for k, one in enumerate(told):
            name, seen[k], rewards[k], flags[0, k], flags[1, k], masks[k] = one
            if name is not None:
                if name not in self.possible_agents:
                    self.possible_agents.append(name)
                agents[k] = self.possible_agents.index(name)
        turn = told_of_losses(Turn(agents, seen, rewards, flags[0], flags[1], masks, infos))
        self._on_turn[env_ids] = np.where(turn.terminations | turn.truncations, NOBODY, agents)
        return turn
