"""One environment of many, wherever it runs, as a PettingZoo environment of the usual kind.

For code that knows PettingZoo and nothing else, such as its own tests. A proxy asks its environment
for everything, so it is no way to be fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pettingzoo import AECEnv, ParallelEnv

from shoal.vector.agents.free import FreeAlternating, FreeTeam
from shoal.vector.agents.free_envs import FreeTeamVectorEnv, FreeTurnVectorEnv
from shoal.vector.agents.make import at_once, find, in_turns
from shoal.vector.make import make
from shoal.vector.source import Source, Wrapper


def team_proxies(
    env: Source, num_envs: int = 1, *, wrappers: Sequence[Wrapper] = (), **settings: Any
) -> list[TeamProxy]:
    """Environments of a team, each as a `ParallelEnv`; arguments are those of `make_team`."""
    made = _make(find(env, "parallel"), num_envs, [*wrappers, at_once, FreeTeam], settings)
    envs = FreeTeamVectorEnv(made)
    return [TeamProxy(envs, env_id) for env_id in range(made.num_envs)]


def turn_proxies(
    env: Source, num_envs: int = 1, *, wrappers: Sequence[Wrapper] = (), **settings: Any
) -> list[TurnProxy]:
    """Environments in which agents take turns, each as an `AECEnv`; as for `make_turns`."""
    made = _make(find(env, "aec"), num_envs, [*wrappers, in_turns, FreeAlternating], settings)
    envs = FreeTurnVectorEnv(made)
    return [TurnProxy(envs, env_id) for env_id in range(made.num_envs)]


def _make(env: Source, num_envs: int, wrappers: Sequence[Wrapper], settings: dict[str, Any]) -> Any:
    # Whoever uses PettingZoo resets by hand.
    return make(env, num_envs, wrappers=wrappers, autoreset="disabled", **settings)


class _Remote:
    """What both kinds ask their environment for."""

    envs: Any
    env_id: int

    def __init__(self, envs: Any, env_id: int) -> None:
        self.envs, self.env_id = envs, env_id
        self.metadata, self.render_mode = dict(envs.metadata), envs.render_mode
        known = self._get("known_agents")
        if known is not None:
            self.possible_agents = known
        self._spaces: dict[tuple[str, Any], Any] = {}

    def observation_space(self, agent: Any) -> Any:
        return self._space("observation_space", agent)

    def action_space(self, agent: Any) -> Any:
        return self._space("action_space", agent)

    def _space(self, kind: str, agent: Any) -> Any:
        if (kind, agent) not in self._spaces:
            self._spaces[kind, agent] = self._call(kind, agent)
        return self._spaces[kind, agent]

    def _forget(self) -> None:
        """Where agents come and go, their spaces may be others in the next episode."""
        if not hasattr(self, "possible_agents"):
            self._spaces.clear()

    def _call(self, name: str, *args: Any) -> Any:
        (answer,) = self.envs.call(name, *args, env_ids=[self.env_id])
        return answer

    def _get(self, name: str) -> Any:
        (answer,) = self.envs.get_attr(name, [self.env_id])
        return answer

    def state(self) -> Any:
        return self._call("state")

    @property
    def state_space(self) -> Any:
        return self._get("state_space")

    def render(self) -> Any:
        return self._call("render")

    def close(self) -> None:
        """Close all environments that were made together with this one."""
        self.envs.close()


class TeamProxy(_Remote, ParallelEnv):  # type: ignore[misc,type-arg,unused-ignore]
    """A team."""

    def __init__(self, envs: FreeTeamVectorEnv, env_id: int) -> None:
        super().__init__(envs, env_id)
        self.agents: list[Any] = []

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._forget()
        seen, infos = self.envs.reset_envs([self.env_id], [seed], [options])
        self.agents = list(self.envs.agents[self.env_id])
        return _first(seen), _first(infos)

    def step(self, actions: dict[Any, Any]) -> Any:
        self.envs.send({name: [action] for name, action in actions.items()}, [self.env_id])
        batch = self.envs.recv(1)
        self.agents = list(self.envs.agents[self.env_id])
        seen, rewards, terminations, truncations = map(_first, batch[:4])
        infos = {name: one[0] for name, one in batch.infos.items() if name in seen}
        return seen, rewards, terminations, truncations, infos


def _first(by_agent: dict[Any, Any]) -> dict[Any, Any]:
    return {name: one[0] for name, one in by_agent.items()}


class TurnProxy(_Remote, AECEnv):  # type: ignore[misc,type-arg,unused-ignore]
    """Agents that take turns."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._forget()
        self.envs.reset_envs([self.env_id], [seed], [options])
        self._look()

    def step(self, action: Any) -> None:
        self.envs.send([action], [self.env_id])
        self.envs.recv(1)
        self._look()

    def observe(self, agent: Any) -> Any:
        return self._call("observe", agent)

    def _look(self) -> None:
        for name, value in self._call("standing").items():
            setattr(self, name, value)
