"""A team that acts at once (PettingZoo's ParallelEnv), seen as agents that take turns (its AEC)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingzoo import AECEnv, ParallelEnv

from shoal.envs.conversions.team import TurnsAtOnce, take_over
from shoal.errors import ConfigError, ContractError, shown


def as_aec(env: Any) -> Any:
    """An `AECEnv` of a `ParallelEnv`; one that is an `AECEnv` already is returned as it is.

    Agents give their actions in turn, in the order of the team's `agents`, and the team acts when
    the last one has: until then nothing changes. Whoever ends is then stepped with None first, as
    PettingZoo has it; whoever appears acts in the next cycle.

    An agent that the team drops without a word is truncated, with its last observation.
    """
    if isinstance(env, AECEnv):
        return env
    if isinstance(env, TurnsAtOnce) and env.each_step == "cycle":
        return env.env
    if not isinstance(env, ParallelEnv):
        raise ConfigError(
            f"as_aec was given {shown(env)}; expected a PettingZoo ParallelEnv (or AECEnv)."
        )
    return TeamInTurns(env)


class TeamInTurns(AECEnv):  # type: ignore[misc, unused-ignore]
    """What `as_aec` returns."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.env = env
        self.agents: list[Any] = []
        take_over(self, env)
        self.metadata["is_parallelizable"] = True

    def observation_space(self, agent: Any) -> Any:
        return self.env.observation_space(agent)

    def action_space(self, agent: Any) -> Any:
        return self.env.action_space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        observations, infos = self.env.reset(seed=seed, options=options)
        self._observations: dict[Any, Any] = dict(observations)
        self.agents = list(self.env.agents)
        self._begin_cycle()
        self.agent_selection = self._turns[0]
        self.rewards: dict[Any, float] = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards: dict[Any, float] = dict.fromkeys(self.agents, 0.0)
        self.terminations: dict[Any, bool] = dict.fromkeys(self.agents, False)
        self.truncations: dict[Any, bool] = dict.fromkeys(self.agents, False)
        self.infos: dict[Any, dict[str, Any]] = _for_each(self.agents, infos)

    def observe(self, agent: Any) -> Any:
        return self._observations[agent]

    def step(self, action: Any) -> None:
        if not self.agents:
            raise ContractError("step was called while no agent is left: call reset first.")
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._clear_rewards()
        self._cumulative_rewards[agent] = 0.0
        self._actions[agent] = action
        self._turns.remove(agent)
        if not self._turns:
            self._act()
        if self._turns:
            self.agent_selection = self._turns[0]
        self._deads_step_first()

    def render(self) -> Any:
        return self.env.render()

    def state(self) -> Any:
        return self.env.state()

    def close(self) -> None:
        self.env.close()

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def _begin_cycle(self) -> None:
        self._actions: dict[Any, Any] = {}
        self._turns: list[Any] = list(self.env.agents)
        """Who is still to say what it does, in order."""

    def _act(self) -> None:
        """The team's step, once all have said what they do."""
        acted = self._actions
        observations, rewards, terminations, truncations, infos = self.env.step(acted)
        self._begin_cycle()
        gone = [agent for agent in [*acted, *terminations] if agent not in self._turns]
        self.agents = [*self._turns, *dict.fromkeys(gone)]
        latest = self._observations | observations
        self._observations = {agent: latest[agent] for agent in self.agents}
        self.rewards = {agent: rewards.get(agent, 0.0) for agent in self.agents}
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = {agent: bool(terminations.get(agent)) for agent in self.agents}
        self.truncations = {
            agent: bool(truncations.get(agent)) or (agent in gone and not self.terminations[agent])
            for agent in self.agents
        }
        self.infos = _for_each(self.agents, infos)


def _for_each(agents: list[Any], infos: Mapping[Any, Any]) -> dict[Any, dict[str, Any]]:
    return {agent: dict(infos.get(agent) or {}) for agent in agents}
