"""Many environments of one team each, all of whose agents act at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from shoal.engine.memento import Memento
from shoal.errors import ContractError
from shoal.layout import Array, Layout
from shoal.seeding import Seed
from shoal.vector.agents.acting import Acting
from shoal.vector.agents.delegate import Known
from shoal.vector.agents.reading import ByAgent, Reading, TeamBatch
from shoal.vector.env import EnvIds, Options, VectorEnv


class TeamVectorEnv(Known):
    """Many environments of one team each. Made by `shoal.make_team`.

    What is given and returned is by agent, each an array `[num_envs, ...]`. An agent that is not
    there (dead, or not born yet) sees zeros, has a reward of 0 and no flags; `alive` tells.
    """

    def __init__(self, below: VectorEnv) -> None:
        super().__init__(below)
        self._reading, self._acting = Reading(self.cast, self.num_envs), Acting(self.cast)

    @property
    def alive(self) -> Array:
        """`[num_envs, num_agents]`: who may act in the next step."""
        return self._reading.alive

    @property
    def action_masks(self) -> Array | None:
        """`[num_envs, num_agents, choices]`: what is possible for each; None without choices."""
        return self._reading.action_masks

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
        return self._reading.see(told), infos

    def step(
        self, actions: Mapping[Any, Any]
    ) -> tuple[ByAgent, ByAgent, ByAgent, ByAgent, dict[str, Any]]:
        """One step of every environment, from an array `[num_envs, ...]` for each agent."""
        given = self._joined(actions)
        try:
            batch = self._stepped(given)
        except ContractError:
            self._acting.explain(given, self.alive)
            raise
        return self._reading.results(batch)[:5]

    def stacked(self) -> Any:
        """The latest observations of all, `[num_envs, num_agents, ...]`, if agents are alike.

        No copy: it is the array of which what `reset`, `step`, `recv`, `reset_envs` or `resize`
        returned last are views, so that its rows are those of that call.
        """
        if not self.cast.sees_alike:
            raise ContractError(
                "agents see different things, so that they cannot be stacked: "
                f"{dict(zip(self.cast.names, self.cast.observation_spaces, strict=True))}."
            )
        return self._reading.stacked

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
        return self._reading.see(told, ids), infos

    def send(self, actions: Mapping[Any, Any], env_ids: EnvIds = None) -> None:
        """Start a step of these environments (default: all) and return at once."""
        ids = None if env_ids is None else self.below._ids(env_ids)
        given = self._joined(actions, ids)
        try:
            self.below.send(given, ids)
        except ContractError:
            self._acting.explain(given, self.alive if ids is None else self.alive[ids], ids)
            raise

    def recv(self, min_envs: int | None = None, timeout_s: float | None = None) -> TeamBatch:
        """The environments that are ready, at least `min_envs` of them."""
        return self._reading.results(self.below.recv(min_envs, timeout_s))

    def resize(
        self, num_envs: int | None = None, num_workers: int | None = None
    ) -> tuple[ByAgent, dict[str, Any]]:
        """Have more or fewer environments and workers; what new ones begin with."""
        before = self.num_envs
        told, infos = self.below.resize(num_envs, num_workers)
        self._reading.resize(self.num_envs)
        return self._reading.see(told, list(range(before, self.num_envs))), infos

    def branch(self, env_id: int, into_ids: Iterable[int]) -> None:
        """Make other environments continue from the exact state of this one."""
        into = list(into_ids)
        super().branch(env_id, into)
        self._reading.branch(env_id, into)

    def go_on(self, mementos: Sequence[Memento]) -> list[int]:
        """Bring environments that were never reset to where others stood."""
        not_there = super().go_on(mementos)
        layout = Layout(self.below.single_observation_space)
        if not layout.has_objects:
            told = zip(*(one.observation for one in mementos), strict=True)
            self._reading.see(layout.assemble(list(map(np.stack, told))))
        return not_there

    # --- inside -----------------------------------------------------------------------------

    def _joined(self, actions: Any, env_ids: Sequence[int] | None = None) -> Any:
        """Actions of all agents as the engine takes them; those of who is not there are blank."""
        alive = self.alive if env_ids is None else self.alive[env_ids]
        return self._acting.at_once(actions, alive, env_ids)
