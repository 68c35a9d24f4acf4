"""`shoal.make_team` and `shoal.make_turns`: PettingZoo's environments on Shoal's engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import gymnasium

from shoal.errors import ConfigError, suggest
from shoal.extras import needs
from shoal.vector.agents.alternating import Alternating
from shoal.vector.agents.cast import CAST
from shoal.vector.agents.free import FreeAlternating, FreeTeam
from shoal.vector.agents.free_envs import FreeTeamVectorEnv, FreeTurnVectorEnv
from shoal.vector.agents.team import TeamVectorEnv
from shoal.vector.agents.together import Team
from shoal.vector.agents.turns import TurnVectorEnv
from shoal.vector.make import DEFAULT_NUM_ENVS, make
from shoal.vector.source import Source, Wrapper


def make_team(
    env: Source,
    num_envs: int = DEFAULT_NUM_ENVS,
    *,
    wrappers: Sequence[Wrapper] = (),
    **settings: Any,
) -> TeamVectorEnv | FreeTeamVectorEnv:
    """Run `num_envs` environments at once in which a team acts (PettingZoo's `ParallelEnv`).

    `env` is an id that PettingZoo knows, or what `shoal.make` takes otherwise, and so is everything
    else; `wrappers` are PettingZoo's. Environments that have no `possible_agents` come as a
    `FreeTeamVectorEnv`.
    """
    made = make(find(env, "parallel"), num_envs, wrappers=[*wrappers, as_team], **settings)
    return FreeTeamVectorEnv(made) if made.metadata[CAST] is None else TeamVectorEnv(made)


def make_turns(
    env: Source,
    num_envs: int = DEFAULT_NUM_ENVS,
    *,
    wrappers: Sequence[Wrapper] = (),
    autoreset: Any = "same_step",
    **settings: Any,
) -> TurnVectorEnv | FreeTurnVectorEnv:
    """Run `num_envs` environments at once in which agents take turns (PettingZoo's `AECEnv`).

    Arguments are as for `make_team`. When an episode is over, the first turn of the next one
    follows at once, unless `autoreset` says something else.
    """
    settings |= {"autoreset": autoreset, "wrappers": [*wrappers, as_turns]}
    made = make(find(env, "aec"), num_envs, **settings)
    return FreeTurnVectorEnv(made) if made.metadata[CAST] is None else TurnVectorEnv(made)


def find(env: Source, kind: Literal["aec", "parallel"]) -> Source:
    """What PettingZoo knows by this id, of this kind or else of the other; others as they are."""
    if not isinstance(env, str) or ":" in env:
        return env
    with needs("pettingzoo", "multiagent"):
        import pettingzoo
        from pettingzoo.env_registry.exceptions import PettingZooRegistryError
    for each in (kind, "aec" if kind == "parallel" else "parallel"):
        try:
            return partial(pettingzoo.make, each, pettingzoo.spec(each, env))
        except PettingZooRegistryError:
            continue
    known = sorted({*pettingzoo.aec_registry, *pettingzoo.parallel_registry})
    raise ConfigError(
        f"PettingZoo has no environment {env!r}. {suggest(env, known)} One of your own is "
        "'module:factory', its class, or a factory."
    )


def find_any(env: Source) -> Source:
    """What PettingZoo knows by an id that Gymnasium does not: as a team, where it can be one."""
    if not isinstance(env, str) or ":" in env or env in gymnasium.registry:
        return env
    if importlib.util.find_spec("pettingzoo") is None:
        return env
    import pettingzoo

    if env in pettingzoo.parallel_registry:
        return find(env, "parallel")
    return find(env, "aec") if env in pettingzoo.aec_registry else env


def as_team(env: Any) -> Team | FreeTeam:
    """A PettingZoo environment as the engine steps it, all agents at once."""
    env = at_once(env)
    return Team(env) if hasattr(env, "possible_agents") else FreeTeam(env)


def at_once(env: Any) -> Any:
    """A PettingZoo environment in which all act at once, of either kind."""
    if not _takes_turns(env):
        return env
    from shoal.envs.conversions import as_parallel

    return as_parallel(env)


def in_turns(env: Any) -> Any:
    """A PettingZoo environment in which agents take turns, of either kind."""
    if _takes_turns(env):
        return env
    from shoal.envs.conversions import as_aec

    return as_aec(env)


def as_turns(env: Any) -> Alternating | FreeAlternating:
    """The same, one agent after the other."""
    env = in_turns(env)
    return Alternating(env) if hasattr(env, "possible_agents") else FreeAlternating(env)


def as_it_is(env: Any) -> Any:
    """A PettingZoo environment as the engine steps it, of whichever kind; others as they are."""
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        return env
    if _takes_turns(env):
        return as_turns(env)
    is_team = hasattr(env, "possible_agents") or hasattr(env, "agents")
    return as_team(env) if is_team else env


def _takes_turns(env: Any) -> bool:
    return hasattr(env, "agent_iter")
