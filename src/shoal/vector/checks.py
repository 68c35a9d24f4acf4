"""Whether an argument can be what it is meant to be: a count, an amount, a choice."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from shoal.errors import ConfigError, shown, suggest


def as_count(name: str, value: Any) -> int:
    """A whole number of at least one."""
    count = as_whole(name, value)
    if count < 1:
        raise ConfigError(f"{name} must be at least 1, got {count}.")
    return count


def as_whole(name: str, value: Any) -> int:
    """A whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} must be a whole number, got {shown(value)}.") from None


def above_zero(name: str, value: Any, unit: str = "") -> None:
    """A number greater than zero."""
    if not isinstance(value, Real) or not float(value) > 0:
        raise ConfigError(f"{name} must be a number{unit} above zero, got {shown(value)}.")


def choose(name: str, value: Any, known: Sequence[str] | Mapping[str, Any]) -> str:
    """`value`, if it is one of those known."""
    if value not in known:
        options = ", ".join(map(repr, known))
        nearest = suggest(value, known)
        hint = f"{nearest} Known are {options}." if nearest.startswith("Did") else nearest
        raise ConfigError(f"{name} is {shown(value)}. {hint}")
    return str(value)
