"""Infos as typed columns: numbers and arrays are written in place, the rest travels beside.

A worker that meets an info entry for the first time sends it along as it is ("odd"); the caller
gives a numeric one a column and tells the workers with their next command, and from then on the
entry costs a store. What the user sees is Gymnasium's `key` / `_key` dictionaries either way, or
(`ApartReader`) one dict for each environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv

from shoal.engine.rows import CACHE_LINE_BYTES, INFO_COLUMNS, Rows
from shoal.errors import ContractError, shown
from shoal.layout import Array

Path = tuple[Any, ...]
_UNSET, _SET = b"\x00", b"\x01"
_EVERYONE = slice(None)


class ColumnSpec(NamedTuple):
    """What a column holds: values of exactly `kind` under `path` (a dict has a mask only)."""

    path: Path
    kind: type
    dtype: str
    shape: tuple[int, ...]


class OddInfo(NamedTuple):
    """An info entry that has no column (yet)."""

    env_id: int
    path: Path
    value: Any


class Column:
    """One info entry of all environments: values and who has one."""

    __slots__ = ("children", "kind", "path", "present", "shape", "spec", "values")

    def __init__(self, spec: ColumnSpec, present: Array, values: Array) -> None:
        self.spec, self.path, self.kind, self.shape = spec, spec.path, spec.kind, spec.shape
        self.present, self.values = present, values
        self.children: dict[Any, Column] = {}

    def takes(self, value: Any) -> bool:
        """Whether this very kind of value belongs here."""
        if self.kind is dict:
            return isinstance(value, dict)
        if type(value) is not self.kind:
            return False
        if not isinstance(value, np.ndarray):
            return True
        return bool(value.shape == self.shape and value.dtype == self.values.dtype)


class Columns:
    """The columns of a pool; adding equal specs in equal order gives equal columns everywhere."""

    def __init__(self, rows: Rows) -> None:
        self.all: list[Column] = []
        self.top: dict[Any, Column] = {}
        self.num_envs = rows.shape.num_envs
        self._present, self._bytes, self._used = rows.info_present, rows.info_bytes, 0

    def add(self, spec: ColumnSpec) -> bool:
        """Make a column; False where there is no room (the entry then stays odd)."""
        dtype, shape = np.dtype(spec.dtype), (self.num_envs, *spec.shape)
        nbytes = int(np.prod(shape)) * dtype.itemsize if spec.kind is not dict else 0
        if len(self.all) == INFO_COLUMNS or self._used + nbytes > len(self._bytes):
            return False
        values = self._bytes[self._used : self._used + nbytes].view(dtype)
        values = values.reshape(shape) if spec.kind is not dict else values
        self._used += -(-nbytes // CACHE_LINE_BYTES) * CACHE_LINE_BYTES
        column = Column(spec, self._present[len(self.all)], values)
        self.siblings(spec.path)[spec.path[-1]] = column
        self.all.append(column)
        return True

    def siblings(self, path: Path) -> dict[Any, Column]:
        """The columns on the level of `path`, by their last key."""
        level = self.top
        for key in path[:-1]:
            level = level[key].children
        return level


class InfoWriter:
    """The worker's side: puts the infos of single environments into columns."""

    def __init__(self, columns: Columns, env_ids: Any) -> None:
        """`env_ids` is an index of those this worker has: a slice or a list."""
        self.columns = columns
        self.odd: list[OddInfo] = []
        # Another worker, whose rows these were, may have left something.
        self.env_ids, self._dirty = env_ids, True

    def take_over(self, env_ids: Any) -> None:
        """From here on these are this worker's, and what others have left of their infos."""
        self.env_ids, self._dirty = env_ids, True

    def clear(self, env_ids: Sequence[int] | None = None) -> None:
        """Forget the infos of the step before (of these environments, or of all)."""
        if not self._dirty:
            return
        those = self.env_ids if env_ids is None else env_ids
        self.columns._present[: len(self.columns.all), those] = False
        self._dirty = env_ids is not None

    def put(self, env_id: int, info: dict[Any, Any]) -> None:
        """Record the (non-empty) info of one environment."""
        if not isinstance(info, dict):
            raise ContractError(f"info is {shown(info)}; expected a dict.")
        self._dirty = True
        self._put(env_id, info, self.columns.top, ())

    def _put(self, env_id: int, info: dict[Any, Any], level: dict[Any, Column], at: Path) -> None:
        for key, value in info.items():
            column = level.get(key)
            if column is None or not column.takes(value):
                self.odd.append(OddInfo(env_id, (*at, key), value))
            elif isinstance(value, dict):
                column.present[env_id] = True
                self._put(env_id, value, column.children, column.path)
            else:
                try:
                    column.values[env_id] = value
                    column.present[env_id] = True
                except OverflowError:
                    self.odd.append(OddInfo(env_id, (*at, key), value))


class InfoReader:
    """The caller's side: Gymnasium's batched infos, and columns for what is new."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self._copies: list[tuple[str, str, Callable[[], Array], Callable[[], Array]]] = []
        """For each column its names in infos, and what copies its values and its mask."""
        self._has_dicts = False

    def collect(
        self,
        env_ids: Sequence[int] | None,
        odd: Sequence[OddInfo],
        only: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """The infos of these environments (None: of all), row k being the k-th of them.

        `only` names those whose infos are wanted; the rows of the others are empty.
        """
        infos: dict[str, Any] = {}
        if not self.columns.all and not odd:
            return infos
        if env_ids is None and only is None and not odd:
            return self._collect_all(infos)
        ids = _EVERYONE if env_ids is None else env_ids
        count = self.columns.num_envs if env_ids is None else len(env_ids)
        used = self.columns._present[: len(self.columns.all), ids]
        if only is not None:
            wanted = np.zeros(self.columns.num_envs, dtype=np.bool_)
            wanted[only] = True
            used = used & wanted[ids]
        mixed: dict[Any, dict[int, Any]] = {one.path[0]: {} for one in odd}
        for index in np.flatnonzero(used.any(axis=1)):
            column, mask = self.columns.all[index], used[index]
            if column.path[0] not in mixed:
                self._add_column(infos, column, mask.copy(), ids)
            elif len(column.path) == 1:
                for k in np.flatnonzero(mask).tolist():
                    env_id = k if env_ids is None else env_ids[k]
                    mixed[column.path[0]][k] = _restored(column, env_id)
        if odd:
            self._add_mixed(infos, mixed, odd, env_ids, count)
        return infos

    def _collect_all(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Those of all environments, of which every entry has a column: the usual case."""
        columns, count = self.columns, self.columns.num_envs
        present = columns._present[: len(columns.all)].tobytes()  # half the time of asking NumPy
        if _UNSET not in present and self._is_flat():
            for key, mask_key, values, mask in self._copies:
                infos[key], infos[mask_key] = values(), mask()
        elif _SET in present:
            for index, column in enumerate(columns.all):
                those = present[index * count : (index + 1) * count]
                if _SET in those:
                    self._add_column(infos, column, column.present.copy(), _EVERYONE)
        return infos

    def add_finals(self, infos: dict[str, Any], finals: dict[int, Any], count: int) -> None:
        """Add the last observations of episodes that have ended, by row."""
        values, mask = np.full(count, None, dtype=object), np.zeros(count, dtype=np.bool_)
        for row, final in finals.items():
            values[row], mask[row] = final, True
        infos["final_obs"], infos["_final_obs"] = values, mask

    def _is_flat(self) -> bool:
        """Whether no column is a dict; there are `_copies` for each then."""
        for column in self.columns.all[len(self._copies) :]:
            key = column.path[-1]
            copies = (column.values.copy, column.present.copy)
            self._copies.append((key, f"_{key}", *copies))
            self._has_dicts |= column.kind is dict or len(column.path) > 1
        return not self._has_dicts

    def _add_column(self, infos: dict[str, Any], column: Column, mask: Array, ids: Any) -> None:
        for key in column.path[:-1]:
            infos = infos[key]
        key = column.path[-1]
        if column.kind is dict:
            infos[key] = {}
        else:
            values = column.values[ids].copy()
            if _UNSET in mask.tobytes():
                values[~mask] = 0
            infos[key] = values
        infos[f"_{key}"] = mask

    def _add_mixed(
        self,
        infos: dict[str, Any],
        mixed: dict[Any, dict[int, Any]],
        odd: Sequence[OddInfo],
        env_ids: Sequence[int] | None,
        count: int,
    ) -> None:
        """Add entries of which something came odd: whole, one environment after another."""
        ids = range(count) if env_ids is None else env_ids
        position = {env_id: k for k, env_id in enumerate(ids)}
        for env_id, path, value in odd:
            inner: Any = mixed[path[0]]
            *outer, last = (position[env_id], *path[1:])
            for key in outer:
                inner = inner[key]
            inner[last] = value
        gatherer = VectorEnv[Any, Any, Any]()
        gatherer.num_envs = count
        for key, values in mixed.items():
            _gather(gatherer, infos, key, values)

    def discover(self, odd: Iterable[OddInfo]) -> list[ColumnSpec]:
        """Give columns to what can have one; returns the new ones, for the workers."""
        found: list[ColumnSpec] = []
        for _, path, value in odd:
            self._discover(path, value, found)
        return found

    def _discover(self, path: Path, value: Any, found: list[ColumnSpec]) -> None:
        if path[-1] in self.columns.siblings(path):
            return
        spec = _spec_for(path, value)
        if spec is None or not self.columns.add(spec):
            return
        found.append(spec)
        if spec.kind is dict:
            for key, inner in value.items():
                self._discover((*path, key), inner, found)


class ApartReader(InfoReader):
    """The same, for who wants one dict for each environment: values as environments gave them."""

    def collect(  # type: ignore[override]
        self,
        env_ids: Sequence[int] | None,
        odd: Sequence[OddInfo],
        only: Sequence[int] | None = None,
    ) -> list[dict[Any, Any]]:
        """The infos of these environments (None: of all), one after another."""
        ids = range(self.columns.num_envs) if env_ids is None else env_ids
        infos = _apart(self.columns.top, slice(None) if env_ids is None else env_ids, len(ids))
        if only is not None:
            infos = [info if i in only else {} for i, info in zip(ids, infos, strict=True)]
        position = {env_id: k for k, env_id in enumerate(ids)} if odd else {}
        for env_id, path, value in odd:
            inner = infos[position[env_id]]
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        return infos

    def add_finals(self, infos: Any, finals: dict[int, Any], count: int) -> None:
        for row, final in finals.items():
            infos[row]["final_obs"] = final


def _apart(level: dict[Any, Column], ids: Any, count: int) -> list[dict[Any, Any]]:
    """What lies in columns of one level, as dicts: a column at a time, which is much quicker."""
    infos: list[dict[Any, Any]] = [{} for _ in range(count)]
    for key, column in level.items():
        present = column.present[ids].tolist()
        if any(present):
            values = _given(column, ids, count)
            for info, has_one, value in zip(infos, present, values, strict=True):
                if has_one:
                    info[key] = value
    return infos


def _given(column: Column, ids: Any, count: int) -> list[Any]:
    """The values of a column, of the type that they had."""
    if column.kind is dict:
        return _apart(column.children, ids, count)
    values = column.values[ids]
    if column.kind is np.ndarray:  # of no dimension, perhaps: those must not become numbers
        return [values[k, ...].copy() for k in range(count)]
    return values.tolist() if column.kind in (int, float, bool) else list(values)


def _spec_for(path: Path, value: Any) -> ColumnSpec | None:
    kind = type(value)
    if path[-1] == "final_obs":  # which Gymnasium keeps as objects
        return None
    if isinstance(value, dict):
        return ColumnSpec(path, dict, "u1", ())
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return ColumnSpec(path, kind, value.dtype.str, value.shape)
    if kind in (int, float, bool) or issubclass(kind, np.number):
        return ColumnSpec(path, kind, np.dtype(kind).str, ())
    return None


def _restored(column: Column, env_id: int) -> Any:
    """What an environment put into a column, as it was."""
    if column.kind is dict:
        children = column.children.items()
        return {key: _restored(one, env_id) for key, one in children if one.present[env_id]}
    value = column.values[env_id, ...].copy()
    if column.kind is np.ndarray:
        return value
    return value.item() if column.kind in (int, float, bool) else value[()]


def _gather(
    gatherer: VectorEnv[Any, Any, Any], infos: dict[str, Any], key: Any, values: dict[int, Any]
) -> None:
    """Add values as Gymnasium does: the first environment decides the type."""
    try:
        for k in sorted(values):
            gatherer._add_info(infos, {key: values[k]}, k)
    except (ValueError, TypeError, OverflowError, AttributeError, IndexError):
        _add_as_objects(infos, key, values, gatherer.num_envs)


def _add_as_objects(infos: dict[str, Any], key: Any, values: dict[int, Any], count: int) -> None:
    """Where Gymnasium's batching fails (arrays of differing shapes): one object per environment."""
    infos[key] = np.full(count, None, dtype=object)
    infos[f"_{key}"] = np.zeros(count, dtype=np.bool_)
    for k, value in values.items():
        infos[key][k], infos[f"_{key}"][k] = value, True
