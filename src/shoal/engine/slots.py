"""Slots: where the latest results of each environment lie.

There are two slots, and an environment writes to them in turn: its last known observation stays
whole while a step that may die is under way, and a view of it stays valid for one more step. As
long as all environments take their steps together, one number says it for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.engine.rows import Rows
from shoal.layout import Array


class Slots:
    """Which slot is whose."""

    def __init__(self, rows: Rows) -> None:
        self._rings, self._num_envs = rows.rings, rows.shape.num_envs
        self.common = 0
        """The slot of the latest results of all environments together."""
        self._each: Array | None = None

    def take_over(self, other: Slots, count: int) -> None:
        """Go on where the slots of other rows were, for their first environments."""
        self.common = other.common
        if other._each is not None:
            self.put(range(count), other._each[:count])

    def of(self, env_ids: Sequence[int] | Array | None) -> Any:
        """Where the latest results of environments are: a number, or one for each."""
        if self._each is None or env_ids is None:
            return self.common
        return self._each[env_ids]

    def of_one(self, env_id: int) -> int:
        return self.common if self._each is None else int(self._each[env_id])

    def next_for_all(self) -> int:
        """Where the next results of all environments go; the latest are safe in the other slot."""
        self._bring_to(self.common)
        return 1 - self.common

    def next_for(self, env_ids: Sequence[int]) -> list[int]:
        """Where the next results of some environments go."""
        if self._each is None:
            return [1 - self.common] * len(env_ids)
        return (1 - self._each[env_ids]).tolist()  # type: ignore[no-any-return]

    def write_next(self, env_ids: Sequence[int], into: memoryview) -> None:
        """Write down 1 + what `next_for` says, at the place of each environment."""
        if self._each is None:
            for env_id in env_ids:
                into[env_id] = 2 - self.common
        else:
            each = self._each.data  # numbers one at a time, at half of what NumPy takes
            for env_id in env_ids:
                into[env_id] = 2 - each[env_id]

    def turn_all(self) -> None:
        """All environments have written where `next_for_all` said."""
        self.common, self._each = 1 - self.common, None

    def turn(self, env_ids: Sequence[int]) -> None:
        """Some environments have written where `next_for` said."""
        self._apart()[env_ids] ^= 1

    def turned(self, env_ids: Sequence[int] | None) -> Any:
        """Some (None: all) environments have written; where that is."""
        if env_ids is None:
            self.turn_all()
        else:
            self.turn(env_ids)
        return self.of(env_ids)

    def put(self, env_ids: Sequence[int], slots: Sequence[int] | Array) -> None:
        """The latest results of these environments are there, whatever was known before."""
        self._apart()[env_ids] = slots

    def _apart(self) -> Array:
        if self._each is None:
            self._each = np.full(self._num_envs, self.common, dtype=np.int64)
        return self._each

    def together(self) -> int:
        """Bring all results into one slot, and not the one that may have been handed out last."""
        if self._each is not None:
            self._bring_to(1 - self.common)
        return self.common

    def _bring_to(self, slot: int) -> None:
        if self._each is None:
            return
        elsewhere = np.flatnonzero(self._each != slot)
        for ring in self._rings:
            ring[slot, elsewhere] = ring[1 - slot, elsewhere]
        self.common, self._each = slot, None
