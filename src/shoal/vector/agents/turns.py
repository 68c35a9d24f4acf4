"""Many environments in which agents take turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.engine.batch import Batch
from shoal.engine.memento import Memento
from shoal.errors import ContractError
from shoal.layout import Array, Layout
from shoal.seeding import Seed
from shoal.vector.agents.acting import Acting
from shoal.vector.agents.alternating import NOBODY
from shoal.vector.agents.delegate import Known
from shoal.vector.env import EnvIds, Options, VectorEnv


class Turn(NamedTuple):
    """Whose turn it is in each environment, and what that agent is told: PettingZoo's `last()`.

    Row k of everything is environment k, or the k-th of those that `recv` names.
    """

    agent_ids: Array
    """Places in `possible_agents`; -1 where an episode is over."""
    observations: Any
    """`[num_envs, ...]`; where agents differ, by agent, and who is meant is in `agent_ids`."""
    rewards: Array
    """What this agent has got since its last turn."""
    terminations: Array
    truncations: Array
    action_masks: Array | None
    """`[num_envs, choices]`; none is possible for an agent that has ended: it does nothing."""
    infos: dict[str, Any]


class TurnVectorEnv(Known):
    """Many environments in which agents take turns. Made by `shoal.make_turns`.

    Each environment is at its own agent's turn, and is given that agent's action. What is given for
    an agent that has ended is not looked at: its turn is there for the reward that it brings.
    """

    ended: Array
    """`[num_envs]`: where the latest step was the last one of an episode."""
    env_ids: Array
    """Of which environments the latest `recv` told."""

    def __init__(self, below: VectorEnv) -> None:
        super().__init__(below)
        self.ended = np.zeros(self.num_envs, np.bool_)
        self.env_ids = np.arange(self.num_envs)
        self._acting, self._on_turn = Acting(self.cast), np.full(self.num_envs, NOBODY)

    # --- all environments -------------------------------------------------------------------

    def reset(self, *, seed: int | Sequence[Seed] | None = None, options: Options = None) -> Turn:
        """Reset all environments, or those in `options["reset_mask"]`; the first turns."""
        return self._turn(*self.below.reset(seed=seed, options=options))

    def step(self, actions: Any) -> Turn:
        """One action in every environment, of the agent whose turn it is; the next turns.

        Where agents act differently, `actions` is by agent, each `[num_envs, ...]`.
        """
        given = self._acting.in_turn(actions, self._on_turn)
        try:
            batch = self._stepped(given)
        except ContractError:
            self._acting.explain_turns(given, self._on_turn)
            raise
        return self._results(batch)

    # --- some of them -----------------------------------------------------------------------

    def reset_envs(
        self,
        env_ids: Iterable[int],
        seeds: int | Sequence[Seed] | None = None,
        options: Options = None,
    ) -> Turn:
        """Reset these environments now, each with its own seed and options (its own task)."""
        ids = list(env_ids)
        return self._turn(*self.below.reset_envs(ids, seeds, options), ids)

    def send(self, actions: Any, env_ids: EnvIds = None) -> None:
        """Start a step of these environments (default: all) and return at once."""
        ids = list(range(self.num_envs)) if env_ids is None else self.below._ids(env_ids)
        given = self._acting.in_turn(actions, self._on_turn[ids], ids)
        try:
            self.below.send(given, ids)
        except ContractError:
            self._acting.explain_turns(given, self._on_turn[ids], ids)
            raise

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

    def go_on(self, mementos: Sequence[Memento]) -> list[int]:
        """Bring environments that were never reset to where others stood."""
        not_there = super().go_on(mementos)
        layout = Layout(self.below.single_observation_space)
        told = zip(*(one.observation for one in mementos), strict=True)
        self._turn(layout.assemble(list(map(np.stack, told))), {})
        return not_there

    # --- inside -----------------------------------------------------------------------------

    def _results(self, batch: Batch) -> Turn:
        infos, self.env_ids = batch.infos, batch.env_ids
        self.ended = noted_ends(self.ended, batch)
        for row in np.flatnonzero(infos.get("_final_obs", ())):
            infos["final_obs"][row] = self._seen(infos["final_obs"][row]["observation"])
        return self._turn(batch.observations, infos, batch.env_ids)

    def _seen(self, observation: Any) -> Any:
        alike = self.cast.sees_alike
        return observation if alike else dict(zip(self.cast.names, observation, strict=True))

    def _turn(
        self, told: Mapping[str, Any], infos: dict[str, Any], env_ids: Any = slice(None)
    ) -> Turn:
        """The turns that these environments are at; and take note of whose actions count."""
        flags, masks = told["flags"].astype(np.bool_), told.get("mask")
        turn = Turn(
            told["agent"],
            self._seen(told["observation"]),
            told["reward"],
            flags[:, 0],
            flags[:, 1],
            None if masks is None else masks.astype(np.bool_),
            infos,
        )
        told_of_losses(turn)
        has_ended = turn.terminations | turn.truncations
        self._on_turn[env_ids] = np.where(has_ended, NOBODY, turn.agent_ids)
        return turn


def noted_ends(before: Array, batch: Batch) -> Array:
    """Where the latest step was the last one of an episode; what was known before is kept."""
    after = before.copy()
    after[batch.env_ids] = batch.terminations | batch.truncations
    return after


def resized(before: Array, num_envs: int) -> Array:
    """The same of more environments, or fewer; there is nothing yet of those that are new."""
    after = np.zeros(num_envs, before.dtype)
    kept = min(num_envs, len(before))
    after[:kept] = before[:kept]
    return after


def told_of_losses(turn: Turn) -> Turn:
    """Where an environment was lost, and its next episode is not shown yet, a turn is cut off."""
    infos = turn.infos
    if "restarted" in infos and "final_obs" not in infos:
        lost = infos["restarted"]
        turn.rewards[lost], turn.terminations[lost], turn.truncations[lost] = 0.0, False, True
    return turn
