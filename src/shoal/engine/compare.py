"""Whether all environments of a pool have the same spaces, and if not, where they differ."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import gymnasium

from shoal.engine.commands import Built
from shoal.errors import ConfigError

Space = gymnasium.Space[Any]
SameSpace = Callable[[Space, Space], bool]


class SpacesDiffer(ConfigError):
    """Environments of one pool have different spaces; `kind` says which of them."""

    kind: str


def check_spaces(spaces: tuple[Space, Space], same: SameSpace, built: Built) -> None:
    """Whether environments that were built, or rebuilt, have the spaces of their pool."""
    observation_space, action_space = spaces
    position = 0
    for (observation, action), width in zip(built.spaces, built.widths, strict=True):
        env_id = built.env_ids[position]
        compare("observation", observation_space, observation, env_id, same)
        compare("action", action_space, action, env_id, operator.eq)
        position += width


def compare(kind: str, first: Space, other: Space, env_id: int, same: SameSpace) -> None:
    if other is first or same(first, other):
        return
    key, expected, got = _difference(first, other)
    problem = SpacesDiffer(
        f"the {kind} space of env {env_id} differs from that of env 0"
        f"{f' at {key}' if key else ''}: expected {expected}, got {got}. "
        "All environments of a pool must have the same spaces."
    )
    problem.kind = kind
    raise problem


def _difference(first: Space, other: Space, key: str = "") -> tuple[str, Space, Space]:
    """The innermost place where two spaces differ."""
    spaces = gymnasium.spaces
    if (
        isinstance(first, spaces.Dict)
        and isinstance(other, spaces.Dict)
        and first.keys() == other.keys()
    ):
        for name in first:
            if first[name] != other[name]:
                return _difference(first[name], other[name], f"{key}[{name!r}]")
    if (
        isinstance(first, spaces.Tuple)
        and isinstance(other, spaces.Tuple)
        and len(first) == len(other)
    ):
        for k in range(len(first)):
            if first[k] != other[k]:
                return _difference(first[k], other[k], f"{key}[{k}]")
    return key, first, other
