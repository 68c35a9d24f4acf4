"""From rows to what a caller gets: batches, infos, last observations, and a tally of episodes."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete

from shoal.engine.batch import Batch
from shoal.engine.commands import Reply
from shoal.engine.infos import ApartReader, Columns, ColumnSpec, InfoReader, OddInfo
from shoal.engine.keep import kept
from shoal.engine.rows import Rows
from shoal.layout import Array, Leaf

_EPISODES_KEPT = 100
Results = tuple[Any, Array, Array, Array, Any]
"""Observations, rewards, terminations, truncations and infos (in the form that the plan says) of
all environments."""


class Tally:
    """What the engine counts by itself."""

    def __init__(self) -> None:
        self.steps = 0
        self.num_episodes = 0
        self.episodes: deque[tuple[float, int]] = deque(maxlen=_EPISODES_KEPT)
        """Return and length of the latest episodes."""

    def add(self, episodes: Sequence[tuple[float, int]]) -> None:
        """Episodes have ended."""
        self.num_episodes += len(episodes)
        self.episodes.extend(episodes)


class Reader:
    """Reads rows, and keeps what came beside them until it is handed out."""

    def __init__(self, rows: Rows, copy: bool, infos_apart: bool = False) -> None:
        self.tally = Tally()
        self._rows, self._copy, self._num_envs = rows, copy, rows.shape.num_envs
        self._infos = (ApartReader if infos_apart else InfoReader)(Columns(rows))
        self._columns = self._infos.columns.all
        self._is_apart = infos_apart
        self._keeps_finals = rows.shape.keeps_finals
        self._all_ids = list(range(rows.shape.num_envs))
        self._copies = [self._copying(slot) for slot in range(rows.shape.slots)]
        """By slot, what makes observations, rewards and flags of all environments the caller's."""
        self._odd: dict[int, list[OddInfo]] = {}
        self._objects: dict[int, tuple[Any, ...]] = {}
        self._final_objects: dict[int, tuple[Any, ...]] = {}
        self._final_scalars: dict[int, Any] = {}

    def _copying(self, slot: int) -> tuple[Callable[[], Any], ...]:
        rows, layout = self._rows, self._rows.shape.observation
        observe: Callable[[], Any] = functools.partial(self.observe, slot, None)
        if layout.is_plain and not layout.has_objects:
            ring = rows.observations[slot][0]
            observe = ring.copy if self._copy else ring.view
        arrays = (rows.rewards, rows.terminations, rows.truncations)
        return observe, *(array[slot].copy for array in arrays)

    def absorb(self, reply: Reply) -> list[ColumnSpec]:
        """Keep what a worker sent beside its rows; returns info columns that are new."""
        self._objects.update(reply.objects)
        self._final_objects.update(reply.final_objects)
        self._final_scalars.update(reply.final_scalars)
        for odd in reply.odd_infos:
            self._odd.setdefault(odd.env_id, []).append(odd)
        return self._infos.discover(reply.odd_infos)

    def objects_of(self, env_id: int) -> tuple[Any, ...]:
        """Those parts of an environment's latest observation that have no row."""
        return self._objects.get(env_id, ())

    def columns(self) -> list[ColumnSpec]:
        """The info columns that there are, in the order in which they were made."""
        return [column.spec for column in self._infos.columns.all]

    def branch(self, env_id: int, into_ids: Sequence[int]) -> None:
        """What came beside the observation of one environment is now that of others, too."""
        for target in into_ids if env_id in self._objects else ():
            self._objects[target] = kept(self._objects[env_id])

    def take_over(self, other: Reader, count: int) -> None:
        """Go on where a reader of other rows was, for its first environments."""
        self.tally = other.tally
        for spec in other.columns():
            self._infos.columns.add(spec)
        self._objects = {i: parts for i, parts in other._objects.items() if i < count}

    def forget(self, keep: set[int]) -> None:
        """Drop what came beside the rows of a step that will not be handed out."""
        for beside in (self._odd, self._final_objects, self._final_scalars):
            for env_id in beside.keys() - keep:
                del beside[env_id]

    def collect(self, slot: int, laid: list[Array] | None = None) -> Results:
        """The results of a step of all environments, which lie in one slot.

        `laid` are its observations by leaf, if they are the caller's already.
        """
        self.tally.steps += self._num_envs
        observations, rewards, terminations, truncations = self._copies[slot]
        if laid is not None:
            observations = functools.partial(self._rows.shape.observation.assemble, laid)
        infos = self.infos(None) if self._odd or self._columns or self._is_apart else {}
        if self._keeps_finals and self._rows.any_ended(slot):
            ended = self._rows.terminations[slot] | self._rows.truncations[slot]
            self._add_finals(np.flatnonzero(ended), None, infos)
        return observations(), rewards(), terminations(), truncations(), infos

    def collect_some(self, slots: Any, numbers: Array) -> Batch:
        """The results of a step of the environments with these numbers, each in its slot."""
        rows, env_ids = self._rows, numbers.tolist()
        arrays = (rows.rewards, rows.terminations, rows.truncations)
        rewards, terminations, truncations = [array[slots, numbers] for array in arrays]
        infos = self.infos(env_ids) if self._odd or self._columns or self._is_apart else {}
        self.tally.steps += len(env_ids)
        if self._keeps_finals:
            ended = np.flatnonzero(terminations | truncations)
            if len(ended):
                self._add_finals(ended, env_ids, infos)
        observations = self.observe(slots, env_ids)
        return Batch(observations, rewards, terminations, truncations, infos, numbers)

    def infos(self, env_ids: Sequence[int] | None, only: Sequence[int] | None = None) -> Any:
        """The infos of these environments (None: of all): Gymnasium's, or a dict for each.

        `only` leaves the rows of all others empty.
        """
        odd: list[OddInfo] = []
        if self._odd:
            ids = self._all_ids if env_ids is None else env_ids
            ids = ids if only is None else only
            odd = [one for env_id in ids for one in self._odd.pop(env_id, ())]
        return self._infos.collect(env_ids, odd, only)

    def observe(self, slots: Any, env_ids: Sequence[int] | None) -> Any:
        """The observations of these environments (None: of all), batched as their space says."""
        layout, rings = self._rows.shape.observation, iter(self._rows.rings)
        parts: list[Any] = []
        position = 0
        for leaf in layout.leaves:
            if leaf.is_array:
                ring = next(rings)
                if env_ids is not None:
                    parts.append(ring[slots, env_ids])
                else:
                    parts.append(ring[slots].copy() if self._copy else ring[slots])
                continue
            ids = self._all_ids if env_ids is None else env_ids
            values = [self._objects[i][position] if i in self._objects else None for i in ids]
            parts.append(layout.batch_objects(leaf, kept(values)))
            position += 1
        return layout.assemble(parts)

    def _add_finals(self, rows: Array, env_ids: Sequence[int] | None, infos: Any) -> None:
        count = self._num_envs if env_ids is None else len(env_ids)
        ids = rows if env_ids is None else np.asarray(env_ids)[rows]
        each = zip(rows.tolist(), ids.tolist(), strict=True)
        finals = {row: self._final(env_id) for row, env_id in each}
        self._infos.add_finals(infos, finals, count)

    def _final(self, env_id: int) -> Any:
        layout = self._rows.shape.observation
        if env_id in self._final_scalars:
            return self._final_scalars.pop(env_id)
        arrays, objects = iter(self._rows.finals), iter(self._final_objects.pop(env_id, ()))
        return layout.assemble(
            [
                _own_row(leaf, next(arrays), env_id) if leaf.is_array else next(objects)
                for leaf in layout.leaves
            ]
        )


def _own_row(leaf: Leaf, array: Array, env_id: int) -> Any:
    """A copy of one row: a number for Discrete, an array (of no dimension, perhaps) for others."""
    return array[env_id] if isinstance(leaf.space, Discrete) else array[env_id, ...].copy()
