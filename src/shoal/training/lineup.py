"""Line-up: who plays what. From environments and settings to agents, learners and the play.

An environment of one agent has one policy. In one of several, agents share policies or have their
own, as the settings say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from gymnasium import spaces

from shoal.algos.agent import Agent, MakeNetwork
from shoal.algos.company import Company, Learners
from shoal.algos.networks import NetworkConfig
from shoal.algos.ppo.config import PPOConfig
from shoal.algos.ppo.learner import PPO
from shoal.errors import ConfigError, shown, suggest
from shoal.rollout.play import Alone, Play
from shoal.rollout.shares import Share
from shoal.rollout.teamplay import TeamPlay
from shoal.rollout.turnplay import TurnPlay
from shoal.training.spaces import describe, space_of
from shoal.vector.agents.cast import CAST, TAKES_TURNS, Cast
from shoal.vector.env import VectorEnv

SHARED, SEPARATE = "shared", "separate"


class Troupe(NamedTuple):
    """The agents of an environment, and who plays them."""

    cast: Cast
    takes_turns: bool
    shares: dict[str, Share]
    """By policy."""


def troupe_of(envs: VectorEnv, policies: Sequence[str], is_central: bool) -> Troupe | None:
    """None where each environment has one agent."""
    if CAST not in envs.metadata:
        if is_central:
            raise ConfigError("central_critic is for a team of agents; this environment has one.")
        if tuple(policies) != (SHARED,):
            raise ConfigError(
                "policies is for several agents; this environment has one, and "
                f"policies is {shown(' '.join(policies))}. Leave it out."
            )
        return None
    cast, takes_turns = envs.metadata[CAST], envs.metadata[TAKES_TURNS]
    if cast is None:
        raise ConfigError(
            "the environment has no possible_agents, so nobody knows for whom policies are needed. "
            "Let it list all agents that there may ever be."
        )
    return troupe(cast, takes_turns, policies, is_central)


def troupe(cast: Cast, takes_turns: bool, policies: Sequence[str], is_central: bool) -> Troupe:
    if is_central and takes_turns:
        raise ConfigError(
            "central_critic is for agents who act at once; here they take turns, and each sees "
            "the environment at another time."
        )
    assigned = assign(cast, policies)
    return Troupe(
        cast, takes_turns, {name: Share(cast, who, is_central) for name, who in assigned.items()}
    )


def assign(cast: Cast, policies: Sequence[str]) -> dict[str, list[int]]:
    """Which agents (numbers) each policy plays."""
    names = [str(one) for one in cast.names]
    if list(policies) == [SEPARATE]:
        return _by_first(cast, [[k] for k in range(len(cast))])
    if list(policies) == [SHARED]:
        return _by_kind(cast)
    found: dict[str, list[int]] = {}
    for rule in policies:
        policy, equals, who = rule.partition("=")
        if not equals or not policy.isidentifier():
            raise ConfigError(
                f"policies holds {rule!r}; expected {SHARED}, {SEPARATE}, or NAME=agent,agent_* "
                "for each policy."
            )
        if policy in found:
            raise ConfigError(
                f"policies names {policy!r} twice. Write {policy}=agent,agent with all its agents."
            )
        found[policy] = [k for one in who.split(",") for k in _matching(one, names)]
    _check_once(found, names)
    for policy, agents in found.items():
        _check_alike(cast, policy, agents)
    return found


def _by_kind(cast: Cast) -> dict[str, list[int]]:
    """One policy for all; or, where they differ in what they see or do, one for each kind."""
    kinds: list[list[int]] = []
    for k in range(len(cast)):
        like = next((kind for kind in kinds if _are_alike(cast, kind[0], k)), None)
        if like is None:
            kinds.append([k])
        else:
            like.append(k)
    if len(kinds) == 1:
        return {SHARED: kinds[0]}
    return _by_first(cast, kinds)


def _by_first(cast: Cast, groups: Sequence[list[int]]) -> dict[str, list[int]]:
    """Groups of agents by the policies that are called after their first ones."""
    found: dict[str, list[int]] = {}
    for agents in groups:
        policy, name = _plain(str(cast.names[agents[0]])), cast.names[agents[0]]
        if policy in found:
            other = cast.names[found[policy][0]]
            raise ConfigError(
                f"the policies of {other!r} and {name!r} would both be called {policy!r}. Name "
                f"policies yourself: policies x={other} y={name} and so on."
            )
        found[policy] = agents
    return found


def _are_alike(cast: Cast, one: int, other: int) -> bool:
    return bool(
        cast.observation_spaces[one] == cast.observation_spaces[other]
        and cast.action_spaces[one] == cast.action_spaces[other]
    )


def _matching(pattern: str, names: list[str]) -> list[int]:
    found = [k for k, name in enumerate(names) if fnmatchcase(name, pattern)]
    if not found:
        raise ConfigError(f"policies names an agent {pattern!r}. {suggest(pattern, names)}")
    return found


def _check_once(found: Mapping[str, list[int]], names: list[str]) -> None:
    played = [k for agents in found.values() for k in agents]
    for k, name in enumerate(names):
        if played.count(k) != 1:
            said = "no policy" if k not in played else "more than one policy"
            raise ConfigError(f"policies gives {said} to the agent {name!r}; expected one.")


def _check_alike(cast: Cast, policy: str, agents: list[int]) -> None:
    sees, does = cast.observation_spaces, cast.action_spaces
    first = agents[0]
    for k in agents[1:]:
        if not _are_alike(cast, first, k):
            raise ConfigError(
                f"the policy {policy!r} cannot play both {cast.names[first]!r} and "
                f"{cast.names[k]!r}: they see {shown(sees[first])} and {shown(sees[k])}, and do "
                f"{shown(does[first])} and {shown(does[k])}. Give each of them a policy."
            )


def _plain(name: str) -> str:
    """As a policy may be called."""
    return "".join(one if one.isalnum() else "_" for one in name)


def company_of(troupe: Troupe, config: NetworkConfig, make_network: MakeNetwork | None) -> Company:
    """New agents for all policies."""
    return Company(
        {
            name: Agent(
                share.own_space, share.action_space, config, make_network, share.central_space
            )
            for name, share in troupe.shares.items()
        }
    )


def agent_of(
    envs: VectorEnv,
    troupe: Troupe | None,
    config: NetworkConfig,
    make_network: MakeNetwork | None,
) -> Agent | Company:
    """What learns to act in these environments."""
    if troupe is None:
        observation, action = envs.single_observation_space, envs.single_action_space
        describe(observation), describe(action)  # which refuses what cannot be learnt
        return Agent(observation, action, config, make_network)
    describe_cast(troupe)
    return company_of(troupe, config, make_network)


def play_of(
    envs: VectorEnv, troupe: Troupe | None, agent: Agent | Company, by_chance: float = 0.0
) -> Play[Any]:
    """How this agent plays in these environments; `by_chance`, where agents take turns."""
    if by_chance:
        _check_chance(troupe)
    if isinstance(agent, Agent):
        return Alone(agent, envs)
    assert troupe is not None
    if troupe.takes_turns:
        return TurnPlay(agent.agents, troupe.shares, envs, by_chance)
    return TeamPlay(agent.agents, troupe.shares, envs)


def _check_chance(troupe: Troupe | None) -> None:
    if troupe is None or not troupe.takes_turns:
        raise ConfigError("random_opponents is for agents who take turns; here nobody does.")
    for space in troupe.cast.action_spaces:
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(f"random_opponents is for discrete actions; here is {shown(space)}.")


def learner_of(
    envs: VectorEnv, troupe: Troupe | None, agent: Agent | Company, config: PPOConfig, seed: int
) -> PPO | Learners:
    """... and how it learns."""
    if isinstance(agent, Agent):
        return PPO(agent, config, envs.num_envs, seed)
    assert troupe is not None
    rows = {name: len(share) * envs.num_envs for name, share in troupe.shares.items()}
    return Learners(agent, config, rows, seed)


# --- in a checkpoint ----------------------------------------------------------------------------


def describe_cast(troupe: Troupe) -> dict[str, Any]:
    """Who there is, as JSON can hold it."""
    cast = troupe.cast
    return {
        "names": [str(one) for one in cast.names],
        "observation_spaces": [describe(one) for one in cast.observation_spaces],
        "action_spaces": [describe(one) for one in cast.action_spaces],
        "takes_turns": troupe.takes_turns,
    }


def described(about: Mapping[str, Any], policies: Sequence[str], is_central: bool) -> Troupe:
    """The troupe that was described."""
    cast = Cast(
        tuple(about["names"]),
        tuple(map(space_of, about["observation_spaces"])),
        tuple(map(space_of, about["action_spaces"])),
    )
    return troupe(cast, about["takes_turns"], policies, is_central)
