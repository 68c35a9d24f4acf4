"""The actions of several agents as one action, and back."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from shoal.errors import ConfigError, ContractError, shown

Array = npt.NDArray[Any]


class Joint(Protocol):
    """One action space for all agents, in their order."""

    space: spaces.Space[Any]

    def split(self, action: Any) -> Sequence[Any]:
        """The action of each agent; `ContractError` if there are more or fewer."""

    def mask(self, masks: Sequence[Array | None]) -> Array | None:
        """What is allowed, from what is allowed to each (None: everything); None if all is."""


def join(each: Sequence[spaces.Space[Any]], flatten: bool) -> Joint:
    """Without `flatten`, a `MultiDiscrete` where all are `Discrete`, else a `Tuple`.

    With it, one `Discrete` of all combinations, or one `Box` with all numbers in a row.
    """
    if all(isinstance(space, spaces.Discrete) for space in each):
        return Combined(each) if flatten else Choices(each)
    if not flatten:
        return Several(each)
    if all(isinstance(space, spaces.Box) for space in each):
        return Row(each)
    raise ConfigError(
        "flatten_actions needs agents whose action spaces are all Discrete or all Box, got "
        f"{', '.join(map(str, each))}. Without it, the action space is a Tuple of these."
    )


class Choices:
    """One choice for each agent, counted from 0."""

    def __init__(self, each: Sequence[Any]) -> None:
        self._sizes = [int(space.n) for space in each]
        self._starts = [int(space.start) for space in each]
        self.space: spaces.Space[Any] = spaces.MultiDiscrete(self._sizes)

    def split(self, action: Any) -> Sequence[Any]:
        choices = np.asarray(action).tolist()
        _check_count(choices, self._starts, action)
        for choice, size in zip(choices, self._sizes, strict=True):
            if not 0 <= choice < size:
                raise ContractError(
                    f"the action is {shown(action)}, which is outside {self.space}: one choice for "
                    "each agent, counted from 0."
                )
        return [choice + start for choice, start in zip(choices, self._starts, strict=True)]

    def mask(self, masks: Sequence[Array | None]) -> Array | None:
        """The choices of one agent after those of the other."""
        return None if _is_void(masks) else np.concatenate(_whole(masks, self._sizes))


class Combined:
    """One number for all choices together; the last agent's changes first."""

    def __init__(self, each: Sequence[Any]) -> None:
        self._sizes = [int(space.n) for space in each]
        self._starts = [int(space.start) for space in each]
        num_combinations = math.prod(self._sizes)
        if num_combinations > np.iinfo(np.int64).max:
            raise ConfigError(
                f"flatten_actions: {len(each)} agents have {num_combinations} combinations of "
                "actions, more than a Discrete can count. Leave it out for a MultiDiscrete."
            )
        self.space: spaces.Space[Any] = spaces.Discrete(num_combinations)
        self._all = range(num_combinations)

    def split(self, action: Any) -> Sequence[Any]:
        number = np.asarray(action)
        if number.size != 1 or number.dtype.kind not in "iu" or number.item() not in self._all:
            raise ContractError(
                f"the action is {shown(action)}; expected one number for all agents together, from "
                f"0 to {len(self._all) - 1}."
            )
        choices = np.unravel_index(number.item(), self._sizes)
        return [int(one) + start for one, start in zip(choices, self._starts, strict=True)]

    def mask(self, masks: Sequence[Array | None]) -> Array | None:
        if _is_void(masks):
            return None
        allowed: Array = functools.reduce(np.multiply.outer, _whole(masks, self._sizes))
        return allowed.reshape(-1)


class Row:
    """All numbers of all agents in a row."""

    def __init__(self, each: Sequence[Any]) -> None:
        self._each = each
        self._ends = np.cumsum([math.prod(space.shape) for space in each])
        dtype = np.result_type(*[space.dtype for space in each])
        low, high = (
            np.concatenate([getattr(space, side).ravel() for space in each]).astype(dtype)
            for side in ("low", "high")
        )
        self.space: spaces.Space[Any] = spaces.Box(low, high, dtype=dtype.type)

    def split(self, action: Any) -> Sequence[Any]:
        numbers = np.asarray(action)
        if numbers.shape != self.space.shape:
            raise ContractError(
                f"the action has shape {numbers.shape}; expected {self.space.shape}: "
                "the numbers of all agents in a row."
            )
        parts = np.split(numbers, self._ends[:-1])
        return [
            part.reshape(space.shape).astype(space.dtype)
            for part, space in zip(parts, self._each, strict=True)
        ]

    def mask(self, masks: Sequence[Array | None]) -> Array | None:
        return None


class Several:
    """A tuple with the action of each agent."""

    def __init__(self, each: Sequence[spaces.Space[Any]]) -> None:
        self._each = each
        self.space: spaces.Space[Any] = spaces.Tuple(each)

    def split(self, action: Any) -> Sequence[Any]:
        _check_count(action, self._each, action)
        return list(action)

    def mask(self, masks: Sequence[Array | None]) -> Array | None:
        return None


def _check_count(parts: Any, agents: Sequence[Any], action: Any) -> None:
    count = len(parts) if hasattr(parts, "__len__") else 1
    if count != len(agents):
        raise ContractError(
            f"the action is {shown(action)}; expected one part for each of {len(agents)} agents."
        )


def _is_void(masks: Sequence[Array | None]) -> bool:
    return all(mask is None for mask in masks)


def _whole(masks: Sequence[Array | None], sizes: Sequence[int]) -> list[Array]:
    """Whoever may do nothing at all is not asked, so anything will do."""
    return [
        np.ones(size, np.int8) if mask is None or not np.any(mask) else np.asarray(mask, np.int8)
        for mask, size in zip(masks, sizes, strict=True)
    ]
