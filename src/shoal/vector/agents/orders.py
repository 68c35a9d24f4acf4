"""Orders: actions as AgileRL gives them, on their way to teams some of whose agents do nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.errors import ContractError, shown, suggest
from shoal.layout import Array
from shoal.vector.agents.cast import Cast, Space
from shoal.vector.agents.reading import batched, joined, nothing


class Orders:
    """Reads actions of all environments; each result is an action of `SkippingTeam`s."""

    def __init__(self, cast: Cast, num_envs: int) -> None:
        self._cast, self._num_envs = cast, num_envs
        self._spaces = dict(zip(cast.names, cast.action_spaces, strict=True))
        self._everyone = np.ones((num_envs, len(cast)), np.int8)

    def of_agents(self, actions: Mapping[Any, Any]) -> tuple[Any, Array]:
        """From `[num_envs, ...]` of each agent; a row of NaN, or no entry, is no action."""
        self._check_names(actions)
        given, acts = {}, self._everyone
        for k, (name, space) in enumerate(self._spaces.items()):
            idle: Any = True
            if name in actions:
                given[name], idle = self._rows(name, space, actions[name])
            else:
                given[name] = nothing(space, self._num_envs)
            if idle is not None:
                acts = acts.copy() if acts is self._everyone else acts
                acts[:, k] &= ~np.asarray(idle)
        return joined(self._cast, given), acts

    def of_envs(self, actions: Sequence[Mapping[Any, Any]]) -> tuple[Any, Array]:
        """From one dict by agent for each environment; who has no entry has no action."""
        if len(actions) != self._num_envs:
            raise ContractError(
                f"there are {len(actions)} dicts of actions; expected {self._num_envs}, one for "
                "each environment."
            )
        given = {}
        acts = np.zeros_like(self._everyone)
        for one in actions:
            self._check_names(one)
        for k, (name, space) in enumerate(self._spaces.items()):
            each = [one.get(name) for one in actions]
            given[name] = batched(space, [None if one is None else _plain(one) for one in each])
            acts[:, k] = [one is not None for one in each]
        what, also = self.of_agents(given)
        return what, acts & also

    def _rows(self, name: Any, space: Space, actions: Any) -> tuple[Any, Array | None]:
        """An agent's actions in the shape of its space, and in which rows there are none."""
        if space.shape is None:  # of several parts, none of which is NaN
            return actions, None
        array, shape = np.asarray(_plain(actions)), (self._num_envs, *space.shape)
        if array.shape != shape:
            array = self._fit(name, array, shape)
        if array.dtype.kind != "f" or not np.isnan(array).any():
            return array, None
        idle: Array = np.isnan(array).reshape(len(array), -1).all(axis=1)
        array = array.copy()
        array[idle] = nothing(space, self._num_envs)[idle]
        return array, idle

    def _fit(self, name: Any, array: Array, shape: tuple[int, ...]) -> Array:
        """Numbers may come as rows of one number, and the other way round."""
        if array.ndim == 0 or len(array) != shape[0] or array.size != np.prod(shape):
            raise ContractError(
                f"actions of {name!r} have shape {array.shape}; expected {shape}, "
                "a row for each environment."
            )
        return array.reshape(shape)

    def _check_names(self, actions: Mapping[Any, Any]) -> None:
        for name in actions:
            if name not in self._spaces:
                raise ContractError(
                    f"there are actions for {shown(name)}, who is none of the agents. "
                    f"{suggest(str(name), list(map(str, self._spaces)))}"
                )


def _plain(values: Any) -> Any:
    """Of a tensor, wherever it is and whatever it remembers, an array; all else as it is."""
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values
