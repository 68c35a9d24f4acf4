"""`shoal.make_team` and `shoal.make_turns`: PettingZoo's environments on Shoal's engine."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import gymnasium

from shoal.errors import ConfigError, shown, suggest
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

Kind = Literal["aec", "parallel"]
_ONE_AGENT = "{} is an environment of one agent (Gymnasium). Use shoal.make({}) for it."


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


def find(env: Source, kind: Kind) -> Source:
    """What PettingZoo knows by this id, of this kind or else of the other; others as they are."""
    if not isinstance(env, str) or ":" in env:
        return env
    with needs("pettingzoo", "multiagent"):
        import pettingzoo
    found = _find_known(env, kind)
    if found is not None:
        return found
    if env in gymnasium.registry:
        raise ConfigError(_ONE_AGENT.format(repr(env), repr(env)))
    known = sorted({*pettingzoo.aec_registry, *pettingzoo.parallel_registry})
    own = "One of your own is 'module:factory', its class, or a factory."
    advice = _advice_on_module(env) or f"{suggest(env, known)} {own}"
    raise ConfigError(f"PettingZoo has no environment {env!r}. {advice}")


def find_any(env: Source) -> Source:
    """What PettingZoo knows by an id that Gymnasium does not: as a team, where it can be one."""
    if not isinstance(env, str) or ":" in env or env in gymnasium.registry or not _has_pettingzoo():
        return env
    return _find_known(env, "parallel") or env


def advice_on(env_id: str) -> str:
    """How an environment is made that Gymnasium does not know and PettingZoo does; else nothing."""
    if not _has_pettingzoo():
        return ""
    for kind, function in (("parallel", "make_team"), ("aec", "make_turns")):
        if _spec_of(kind, env_id) is not None:
            return f"PettingZoo has it, for several agents: shoal.{function}({env_id!r})."
    full = _full_id(env_id)
    if full is not None:
        return f"PettingZoo calls it {full!r}, an environment of several agents: use that name."
    return _advice_on_module(env_id)


def _full_id(env_id: str) -> str | None:
    """The id of what is named without its group, such as `pistonball_v6`."""
    import pettingzoo

    known = [*pettingzoo.parallel_registry, *pettingzoo.aec_registry]
    asked = env_id.replace("_v", "-v")
    return next((one for one in known if asked in _short_names(one)), None)


def _short_names(env_id: str) -> tuple[str, str]:
    name = env_id.rpartition("/")[2]
    return name, name.rpartition("-v")[0]


def _has_pettingzoo() -> bool:
    return importlib.util.find_spec("pettingzoo") is not None


def _find_known(env_id: str, kind: Kind) -> Source | None:
    for each in (kind, "aec" if kind == "parallel" else "parallel"):
        spec = _spec_of(each, env_id)
        if spec is not None:
            import pettingzoo

            return partial(pettingzoo.make, each, spec)
    return None


def _spec_of(kind: str, env_id: str) -> Any:
    """What is registered by this id, with its version as in `-v3` or `_v3`, or without one."""
    import pettingzoo
    from pettingzoo.env_registry.exceptions import PettingZooRegistryError

    try:
        return pettingzoo.spec(kind, env_id)
    except PettingZooRegistryError:
        return None


def _advice_on_module(env_id: str) -> str:
    """What to say for an id that is a module of PettingZoo's kind, such as `mpe2/simple_spread_v3`.

    Nobody has registered those; they hold functions that make environments.
    """
    name = env_id.replace("/", ".")
    if not re.fullmatch(r"\w+(\.\w+)*\.\w+_v\d+", name):
        return ""  # nothing is imported that only might be meant
    try:
        module = importlib.import_module(name)
    except Exception:  # whatever it is, there is nothing to say about it
        return ""
    for factory, function in (("parallel_env", "make_team"), ("env", "make_turns")):
        if callable(getattr(module, factory, None)):
            return f"It is a module: shoal.{function}('{name}:{factory}')."
    return ""


def as_team(env: Any) -> Team | FreeTeam:
    """A PettingZoo environment as the engine steps it, all agents at once."""
    env = at_once(env)
    return Team(env) if hasattr(env, "possible_agents") else FreeTeam(env)


def at_once(env: Any) -> Any:
    """A PettingZoo environment in which all act at once, of either kind."""
    _check_kind(env)
    if not _takes_turns(env):
        return env
    from shoal.envs.conversions import as_parallel

    return as_parallel(env)


def in_turns(env: Any) -> Any:
    """A PettingZoo environment in which agents take turns, of either kind."""
    _check_kind(env)
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


def _check_kind(env: Any) -> None:
    if isinstance(env, gymnasium.Env | gymnasium.vector.VectorEnv):
        raise ConfigError(_ONE_AGENT.format(shown(env), "..."))
    if not (hasattr(env, "step") and hasattr(env, "reset")):
        raise ConfigError(
            f"{shown(env)} ({type(env).__name__}) is no environment; expected PettingZoo's "
            "ParallelEnv or AECEnv. Return one from the factory."
        )


def _takes_turns(env: Any) -> bool:
    return hasattr(env, "agent_iter")
