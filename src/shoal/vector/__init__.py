"""What users hold: presentations of a pool for Gymnasium and for other ecosystems.

Drop-ins have modules of their own (`gym`, `sb3`, `agilerl`); the names here are for several agents,
beside `shoal.make_team` and `shoal.make_turns`, and are imported when they are asked for.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from shoal.vector.agents.free_envs import FreeTeamVectorEnv, FreeTurnVectorEnv
    from shoal.vector.agents.proxies import team_proxies, turn_proxies
    from shoal.vector.agents.rows import rows_of_team

__all__ = [
    "FreeTeamVectorEnv",
    "FreeTurnVectorEnv",
    "rows_of_team",
    "team_proxies",
    "turn_proxies",
]

_HOMES = {
    "FreeTeamVectorEnv": "free_envs",
    "FreeTurnVectorEnv": "free_envs",
    "rows_of_team": "rows",
    "team_proxies": "proxies",
    "turn_proxies": "proxies",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from shoal.extras import needs

    with needs("pettingzoo", "multiagent"):
        return getattr(import_module(f"{__name__}.agents.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
