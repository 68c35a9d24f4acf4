"""Acting: actions of several agents on their way to the engine.

Whatever is given for an agent that is not there is not looked at, and replaced by something that
its space has, so that only actions that count are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.errors import ContractError, shown, suggest
from shoal.layout import Array, Layout, Leaf
from shoal.vector.agents.cast import Cast, Space
from shoal.vector.agents.reading import joined, nothing

Who = Callable[[int], Any]
"""The agent that acts in a row."""
_NUMBERS = "biuf"
"""Kinds of arrays that actions come in."""


class Acting:
    """Reads actions by agent, each with a row for every environment in `env_ids` (None: all)."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._layouts = [Layout(space) for space in cast.action_spaces]
        each = zip(cast.names, self._layouts, strict=True)
        self._shapes = {name: one.arrays[0].shape if _is_array(one) else None for name, one in each}
        """Of one action of each agent; None where it has parts."""
        first = self._layouts[0]
        is_plain = cast.acts_alike and _is_array(first)
        self._blank = nothing(first.space, 1)[0] if is_plain else None

    def at_once(self, actions: Any, acts: Array, env_ids: Sequence[int] | None = None) -> Any:
        """Those of a team; `acts` says whose count, `[num_envs, num_agents]`."""
        if not self._are_rows(actions, len(acts)):
            actions = self._read(actions, acts, env_ids)
        return self._blanked(joined(self._cast, actions), acts)

    def _are_rows(self, actions: Any, count: int) -> bool:
        """Whether there are just the arrays that are expected, as nearly always."""
        if type(actions) is not dict or actions.keys() != self._shapes.keys():
            return False
        for name, shape in self._shapes.items():
            part = actions[name]
            if (
                type(part) is not np.ndarray
                or part.shape[1:] != shape
                or len(part) != count
                or part.dtype.kind not in _NUMBERS
            ):
                return False
        return True

    def _read(self, actions: Any, acts: Array, env_ids: Sequence[int] | None) -> dict[Any, Any]:
        """Rows of every agent, whatever they came as."""
        cast, given = self._cast, {}
        self._check_names(actions, len(acts))
        for k, name in enumerate(cast.names):
            if name in actions:
                given[name] = self._rows(k, actions[name], acts[:, k], _always(name), env_ids)
            elif acts[:, k].any():
                raise ContractError(f"there are no actions for {name!r}, who is alive.")
            else:
                given[name] = nothing(cast.action_spaces[k], len(acts))
        return given

    def in_turn(self, actions: Any, on_turn: Array, env_ids: Sequence[int] | None = None) -> Any:
        """Those of agents who take turns; `on_turn`: whose counts in each environment, or -1."""
        cast = self._cast
        acts = on_turn[:, None] == np.arange(len(cast))
        if not cast.acts_alike:
            return self.at_once(actions, acts, env_ids)
        is_idle = on_turn < 0
        rows = self._rows(0, actions, ~is_idle, lambda row: cast.names[on_turn[row]], env_ids)
        return self._without(0, rows, is_idle) if is_idle.any() else rows

    def explain(self, whole: Any, acts: Array, env_ids: Sequence[int] | None = None) -> None:
        """Raise a ContractError that names the agent, where an action is outside its space."""
        cast, ids = self._cast, range(len(acts)) if env_ids is None else env_ids
        for k, (name, space) in enumerate(zip(cast.names, cast.action_spaces, strict=True)):
            part = cast.part(whole, k, cast.acts_alike)
            for row in np.flatnonzero(acts[:, k]).tolist():
                check_possible(name, space, _row(part, row), f" in env {ids[row]}")

    def explain_turns(
        self, whole: Any, on_turn: Array, env_ids: Sequence[int] | None = None
    ) -> None:
        """The same for agents who take turns."""
        cast, ids = self._cast, range(len(on_turn)) if env_ids is None else env_ids
        for row in np.flatnonzero(on_turn >= 0).tolist():
            k = int(on_turn[row])
            part = whole if cast.acts_alike else whole[k]
            space = cast.action_spaces[k]
            check_possible(cast.names[k], space, _row(part, row), f" in env {ids[row]}")

    def _check_names(self, actions: Any, count: int) -> None:
        names = self._cast.names
        if not isinstance(actions, Mapping):
            raise ContractError(
                f"actions are {shown(actions)}; expected a dict by agent, with {count} rows for "
                f"each of {list(names)}."
            )
        check_known(actions, self._cast.number)

    def _rows(
        self, k: int, given: Any, acts: Array, who: Who, env_ids: Sequence[int] | None
    ) -> Any:
        """One agent's actions, a row for each environment; those that count are as they were."""
        layout = self._layouts[k]
        if _is_array(layout):
            return _leaf_rows(layout.arrays[0], given, acts, who, env_ids)
        parts = layout.take_apart(given, f"actions of {self._cast.names[k]!r}")
        return layout.assemble(
            [
                _leaf_rows(leaf, part, acts, who, env_ids) if leaf.is_array else part
                for leaf, part in zip(layout.leaves, parts, strict=True)
            ]
        )

    def _blanked(self, whole: Any, acts: Array) -> Any:
        """The same with nothing in it that does not count."""
        if 0 not in acts.tobytes():
            return whole
        idle = ~acts
        if self._blank is not None:  # these are arrays of our own
            whole[idle] = self._blank
            return whole
        if self._cast.acts_alike:
            return self._without(0, whole, idle)
        return tuple(
            self._without(k, part, idle[:, k]) if idle[:, k].any() else part
            for k, part in enumerate(whole)
        )

    def _without(self, k: int, values: Any, idle: Array) -> Any:
        layout, parts = self._layouts[k], []
        for leaf, part in zip(layout.leaves, layout.take_apart(values), strict=True):
            if leaf.is_array:
                part = np.array(part)
                part[idle] = nothing(leaf.space, 1)[0]
            parts.append(part)
        return layout.assemble(parts)


def idle(space: Space) -> Any:
    """What an agent does that nobody asks: an action of its space, None in it where are objects."""
    layout = Layout(space)
    return layout.assemble(
        [nothing(leaf.space, 1)[0] if leaf.is_array else None for leaf in layout.leaves]
    )


def _is_array(layout: Layout) -> bool:
    """Whether a value is one array, and nothing around it."""
    return layout.is_plain and not layout.has_objects


def _always(name: Any) -> Who:
    return lambda _: name


def _leaf_rows(
    leaf: Leaf, given: Any, acts: Array, who: Who, env_ids: Sequence[int] | None
) -> Array:
    shape = (len(acts), *leaf.shape)
    if type(given) is np.ndarray and given.shape == shape and given.dtype.kind in _NUMBERS:
        return given  # as nearly always
    array = _as_numbers(given)
    if array is not None and array.shape == shape:
        return array
    return _row_by_row(leaf, given, acts, who, env_ids)


def _row_by_row(
    leaf: Leaf, given: Any, acts: Array, who: Who, env_ids: Sequence[int] | None
) -> Array:
    """The same of a list in which there may be anything for agents that are not there."""
    rows = listed(given, len(acts), repr(who(0)))
    ids = range(len(rows)) if env_ids is None else env_ids
    found = []
    for row, one in enumerate(rows):
        if not acts[row]:
            found.append(nothing(leaf.space, 1)[0])
            continue
        array = _as_numbers(one)
        if array is None or array.shape != leaf.shape:
            raise ContractError(
                f"the action of {who(row)!r} in env {ids[row]} is {shown(one)}; expected one of "
                f"{leaf.space}."
            )
        found.append(array)
    return np.stack(found)


def _as_numbers(given: Any) -> Array | None:
    """It as an array of numbers; None where that cannot be."""
    try:
        array = np.asarray(given)
    except ValueError:  # rows of differing lengths
        return None
    return array if array.dtype.kind in _NUMBERS else None


def listed(given: Any, count: int, of: str) -> Sequence[Any]:
    """Rows of what was given, if there are so many."""
    if not hasattr(given, "__len__") or isinstance(given, str | bytes | Mapping):
        raise ContractError(
            f"actions of {of} are {shown(given)}; expected {count} rows, one for each environment."
        )
    if len(given) != count:
        raise ContractError(
            f"actions of {of} have {len(given)} rows; expected {count}, one for each environment."
        )
    return list(given)


def check_known(names: Iterable[Any], known: Iterable[Any]) -> None:
    """Whether all are among those who are known."""
    known = list(known)
    strangers = [name for name in names if name not in known]
    if strangers:
        raise ContractError(
            f"there are actions for {shown(strangers[0])}, who is none of the agents. "
            f"{suggest(str(strangers[0]), list(map(str, known)))}"
        )


def check_possible(name: Any, space: Space, action: Any, where: str = "") -> None:
    """Whether a space of choices has this action. Bounds of a Box are not enforced."""
    for leaf, part in _leaves_of(space, action):
        if not isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            continue
        array = _as_numbers(part)
        if array is None or array.shape != leaf.shape or not _is_in(leaf, array):
            plain = part if array is None else array.tolist()
            raise ContractError(
                f"{leaf.name('the action')} of {name!r}{where} is {shown(plain)}, outside its "
                f"space {leaf.space}."
            ) from None


def _leaves_of(space: Space, action: Any) -> Iterable[tuple[Leaf, Any]]:
    layout = Layout(space)
    return zip(layout.leaves, layout.take_apart(action, "action"), strict=True)


def _is_in(leaf: Leaf, array: Array) -> bool:
    cast = array.astype(leaf.dtype)
    return bool((cast == array).all()) and leaf.space.contains(cast[()])


def _row(values: Any, row: int) -> Any:
    if isinstance(values, dict):
        return {key: _row(one, row) for key, one in values.items()}
    return tuple(_row(one, row) for one in values) if isinstance(values, tuple) else values[row]
