"""Whether all environments of a pool have the same spaces, and if not, where they differ."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

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
    if is_same(first, other, same):
        return
    key, expected, got = _difference(first, other)
    problem = SpacesDiffer(
        f"the {kind} space of env {env_id} differs from that of env 0"
        f"{f' at {key}' if key else ''}: expected {expected}, got {got}. "
        "All environments of a pool must have the same spaces."
    )
    problem.kind = kind
    raise problem


def is_same(first: Space, other: Space, same: SameSpace) -> bool:
    """Whether two spaces are the same; those of a class without `__eq__` if all in them is."""
    if other is first or same(first, other):
        return True
    spaces = gymnasium.spaces
    if type(first) is type(other) and isinstance(first, spaces.Dict | spaces.Tuple):
        return _is_alike(first.spaces, other.spaces, same)  # type: ignore[attr-defined]
    return (
        _has_no_eq(first)
        and _kind(first) == _kind(other)
        and _is_alike(_state(first), _state(other), same)
    )


def _is_alike(first: Any, other: Any, same: SameSpace) -> bool:
    """Whether two values that a space consists of are the same."""
    if isinstance(first, gymnasium.Space) and isinstance(other, gymnasium.Space):
        return is_same(first, other, same)
    if _kind(first) != _kind(other):
        return False
    if isinstance(first, np.ndarray):
        return first.dtype == other.dtype and np.array_equal(first, other)
    if isinstance(first, Mapping):
        return first.keys() == other.keys() and all(
            _is_alike(first[key], other[key], same) for key in first
        )
    if isinstance(first, list | tuple):
        return len(first) == len(other) and all(
            _is_alike(one, another, same) for one, another in zip(first, other, strict=True)
        )
    if _has_no_eq(first):
        return first is other or cloudpickle.dumps(first) == cloudpickle.dumps(other)
    return bool(first == other)


def _has_no_eq(value: Any) -> bool:
    eq: Any = type(value).__eq__
    return eq is object.__eq__


def _kind(value: Any) -> tuple[str, str]:
    """The name of its class: one that is defined in a factory is another one each time."""
    return type(value).__module__, type(value).__qualname__


def _state(space: Space) -> dict[str, Any]:
    return {name: value for name, value in vars(space).items() if name != "_np_random"}


def _difference(first: Space, other: Space, key: str = "") -> tuple[str, Space, Space]:
    """The innermost place where two spaces differ."""
    spaces = gymnasium.spaces
    if (
        isinstance(first, spaces.Dict)
        and isinstance(other, spaces.Dict)
        and first.keys() == other.keys()
    ):
        for name in first:
            if not is_same(first[name], other[name], operator.eq):
                return _difference(first[name], other[name], f"{key}[{name!r}]")
    if (
        isinstance(first, spaces.Tuple)
        and isinstance(other, spaces.Tuple)
        and len(first) == len(other)
    ):
        for k in range(len(first)):
            if not is_same(first[k], other[k], operator.eq):
                return _difference(first[k], other[k], f"{key}[{k}]")
    return key, first, other
