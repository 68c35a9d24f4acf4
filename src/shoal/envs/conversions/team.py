"""Agents that take turns (PettingZoo's AEC), seen as a team that acts at once (its ParallelEnv).

PettingZoo's own conversion allows agents to end or to appear only at the end of a cycle, and in one
fixed order. Here both may happen at any turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from pettingzoo import AECEnv, ParallelEnv

from shoal.errors import ConfigError, ContractError, shown, suggest

EachStep = Literal["cycle", "turn"]


class Row(NamedTuple):
    """What a step says of an agent, but for its reward."""

    observation: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def as_parallel(env: Any, each_step: EachStep = "cycle") -> Any:
    """A `ParallelEnv` of an `AECEnv`; one that is a `ParallelEnv` already is returned as it is.

    With `each_step="cycle"` a step is one turn of every agent, each with the action that it was
    given before the others moved. The step is over when someone is to act who has acted in it, or
    who has appeared in it. An action that has not been used by then (the environment has passed its
    agent over) is dropped.

    With `each_step="turn"` a step is one turn of one agent, for games in which each move answers
    the one before. Only its action is used, and needed: it is the one whose `info["active"]` was
    True.

    Rewards are summed over the turns of a step. An agent that ends in the middle of a step reports
    the observation, flags and info of that moment; what it would get later is dropped.
    """
    from shoal.envs.conversions.turns import TeamInTurns

    if each_step not in get_args(EachStep):
        advice = suggest(each_step, get_args(EachStep))
        raise ConfigError(f"each_step is {shown(each_step)}. {advice}")
    if isinstance(env, ParallelEnv):
        return env
    if isinstance(env, TeamInTurns) and each_step == "cycle":
        return env.env
    if not isinstance(env, AECEnv):
        raise ConfigError(
            f"as_parallel was given {shown(env)}; expected a PettingZoo AECEnv (or ParallelEnv)."
        )
    return TurnsAtOnce(env, each_step)


class TurnsAtOnce(ParallelEnv):  # type: ignore[misc, unused-ignore]
    """What `as_parallel` returns."""

    def __init__(self, env: Any, each_step: EachStep) -> None:
        self.env = env
        self.each_step = each_step
        self.agents: list[Any] = []
        self._told: set[Any] = set()
        """Agents whose end has been reported, though the environment may still hold them."""
        take_over(self, env)

    def observation_space(self, agent: Any) -> Any:
        return self.env.observation_space(agent)

    def action_space(self, agent: Any) -> Any:
        return self.env.action_space(agent)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, Any], dict[Any, dict[str, Any]]]:
        self.env.reset(seed=seed, options=options)
        self._told = set()
        self.agents = self._living()
        rows = {agent: self._row(agent) for agent in self.agents}
        return _column(rows, "observation"), _column(rows, "info")

    def step(self, actions: Mapping[Any, Any]) -> tuple[dict[Any, Any], ...]:
        waiting = self._who_acts(actions)
        rows: dict[Any, Row] = {}
        rewards: dict[Any, float] = defaultdict(float)
        while self.env.agents:
            agent = self.env.agent_selection
            if self._is_over(agent):
                self._remove(agent)
            elif agent in waiting:
                waiting.discard(agent)
                self.env.step(actions[agent])
                for each, reward in self.env.rewards.items():
                    rewards[each] += reward
                self._report([one for one in self.env.agents if self._is_over(one)], rows)
            else:
                break
        self._report(self.env.agents, rows)
        self._check_nobody_is_lost(rows)
        self.agents = self._living()
        return (
            _column(rows, "observation"),
            {agent: rewards[agent] for agent in rows},
            _column(rows, "terminated"),
            _column(rows, "truncated"),
            _column(rows, "info"),
        )

    def render(self) -> Any:
        return self.env.render()

    def state(self) -> Any:
        return self.env.state()

    def close(self) -> None:
        self.env.close()

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def _who_acts(self, actions: Mapping[Any, Any]) -> set[Any]:
        if not self.agents:
            raise ContractError("step was called while no agent is left: call reset first.")
        acting = self.agents if self.each_step == "cycle" else [self.env.agent_selection]
        missing = [agent for agent in acting if agent not in actions]
        if missing:
            raise ContractError(
                f"step was given no action for {missing[0]!r}; expected one for each of {acting}, "
                f"got {shown(dict(actions))}."
            )
        return set(acting)

    def _is_over(self, agent: Any) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _living(self) -> list[Any]:
        return [agent for agent in self.env.agents if not self._is_over(agent)]

    def _row(self, agent: Any) -> Row:
        env, info = self.env, dict(self.env.infos[agent])
        if self.each_step == "turn":
            info["active"] = agent == env.agent_selection and not self._is_over(agent)
        terminated, truncated = bool(env.terminations[agent]), bool(env.truncations[agent])
        return Row(env.observe(agent), terminated, truncated, info)

    def _report(self, agents: list[Any], rows: dict[Any, Row]) -> None:
        """What is to be said of these agents now; nothing of whose end has been told."""
        fresh = [agent for agent in agents if agent not in self._told]
        rows.update((agent, self._row(agent)) for agent in fresh)
        self._told.update(agent for agent in fresh if self._is_over(agent))

    def _remove(self, agent: Any) -> None:
        """PettingZoo's contract: whoever has ended is stepped once more, with None."""
        self.env.step(None)
        if agent in self.env.agents:
            raise ContractError(
                f"{agent!r} has ended, but step(None) did not remove it from the agents of "
                f"{self.env}. Let its step call _was_dead_step for agents that have ended."
            )

    def _check_nobody_is_lost(self, rows: Mapping[Any, Row]) -> None:
        lost = [agent for agent in self.agents if agent not in rows]
        if lost:
            raise ContractError(
                f"{lost[0]!r} has disappeared from the agents of {self.env} without an end. "
                "Set its termination or truncation, and let _was_dead_step remove it."
            )


def take_over(view: Any, env: Any) -> None:
    """What a conversion has in common with what it converts; not every environment has it all."""
    view.metadata = dict(env.metadata)
    view.render_mode = getattr(env, "render_mode", None)
    for name in ("possible_agents", "state_space"):
        if hasattr(env, name):
            setattr(view, name, getattr(env, name))


def _column(rows: Mapping[Any, Row], name: str) -> dict[Any, Any]:
    return {agent: getattr(row, name) for agent, row in rows.items()}
