"""Several agents: environments of theirs in a plain loop, and sessions of those who vectorise them.

A transition is a step of an environment, however many agents act in it. Where agents take turns,
the turn of one who has ended is a step like any other.
"""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from shoal.measure.session import Course


def plain(env: Any) -> Any:
    """An environment with the `step` of one agent's, whoever acts in it."""
    if hasattr(env, "agent_iter"):
        return PlainTurns(env)
    return PlainTeam(env) if hasattr(env, "possible_agents") else env


class PlainTeam:
    """All act at once; over when nobody is left."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.action_space = team_space(env)
        self.close = env.close

    def reset(self, seed: int | None = None) -> Any:
        return self._env.reset(seed=seed)

    def step(self, actions: dict[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        env = self._env
        if len(env.agents) < len(actions):
            actions = {name: actions[name] for name in env.agents}
        seen, _, _, _, infos = env.step(actions)
        return seen, 0.0, not env.agents, False, infos


class PlainTurns:
    """One after the other, all with the same actions; over when all have had their last turn."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self.action_space = env.action_space(env.possible_agents[0])
        self.close = env.close

    def reset(self, seed: int | None = None) -> Any:
        return self._env.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        env = self._env
        seen, _, terminated, truncated, info = env.last()
        env.step(None if terminated or truncated else action)
        return seen, 0.0, not env.agents, False, info


def team_space(envs: Any) -> spaces.Dict:
    """What the agents of one environment do, of whoever has `single_action_space` or one only."""
    of = getattr(envs, "single_action_space", None) or envs.action_space
    return spaces.Dict({name: of(name) for name in envs.possible_agents})


class PlainSession:
    """Plain environments, stepped one after the other by the caller."""

    note = ""

    def __init__(self, course: Course) -> None:
        self._envs = [plain(factory()) for factory in course.factories]
        self.action_space = self._envs[0].action_space

    def reset(self) -> None:
        for number, env in enumerate(self._envs):
            env.reset(seed=number)

    def prepare(self, actions: Any) -> Any:
        return list(iterate(batch_space(self.action_space, len(self._envs)), actions))

    def step(self, prepared: Any) -> int:
        for env, action in zip(self._envs, prepared, strict=True):
            _, _, is_over, _, _ = env.step(action)
            if is_over:
                env.reset()
        return len(self._envs)

    def close(self) -> None:
        for env in self._envs:
            env.close()


class AgentsSession:
    """A vector environment of several agents that resets in the same step: teams, or turns."""

    def __init__(self, envs: Any, action_space: spaces.Space[Any], note: str = "") -> None:
        self._envs, self.action_space, self.note = envs, action_space, note
        self._num_envs: int = envs.num_envs

    def reset(self) -> None:
        self._envs.reset(seed=0)

    def prepare(self, actions: Any) -> Any:
        return actions

    def step(self, prepared: Any) -> int:
        self._envs.step(prepared)
        return self._num_envs

    def close(self) -> None:
        self._envs.close()
