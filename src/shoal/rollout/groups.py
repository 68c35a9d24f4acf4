"""Groups: which environments are stepped together, and who waits for whom.

Usually all are one group: the policy decides about all of them, all take a step, and so on
(`Together`). In two groups one steps while the policy decides about the other (`InTurns`); every
worker has environments of both. What happens in an environment does not depend on when it is
received: results of a group are put together, in its order, before anybody sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.engine.batch import Batch
from shoal.layout import Array, Layout
from shoal.vector.env import VectorEnv


class Moment(NamedTuple):
    """What a step of a group has come to."""

    observations: list[Array]
    """One array for each leaf of the observation space."""
    rewards: Array
    terminations: Array
    truncations: Array
    infos: Mapping[str, Any]


class Stepper(Protocol):
    """Steps environments in groups."""

    rows: list[slice]
    """Which environments each group has, of all."""

    def begin(self, group: int, actions: Array) -> None:
        """Let these take a step."""

    def finish(self, group: int) -> Moment:
        """Wait until they have."""


class Together:
    """One group: a step of all."""

    def __init__(self, envs: VectorEnv, layout: Layout) -> None:
        self._envs, self._layout = envs, layout
        self.rows = [slice(None)]
        self._actions: Array

    def begin(self, group: int, actions: Array) -> None:
        self._actions = actions

    def finish(self, group: int) -> Moment:
        observations, rewards, terminations, truncations, infos = self._envs.step(self._actions)
        leaves = self._layout.take_apart(observations)
        return Moment(leaves, rewards, terminations, truncations, infos)


class InTurns:
    """Two groups, every other environment in each."""

    def __init__(self, envs: VectorEnv, layout: Layout) -> None:
        self._envs, self._layout = envs, layout
        self.rows = [slice(0, None, 2), slice(1, None, 2)]
        self._ids = [np.arange(envs.num_envs)[rows] for rows in self.rows]
        self._inboxes = [Inbox(len(ids)) for ids in self._ids]

    def begin(self, group: int, actions: Array) -> None:
        self._envs.send(actions, self._ids[group])

    def finish(self, group: int) -> Moment:
        inbox = self._inboxes[group]
        while inbox.num_missing:
            self._deliver(self._envs.recv(1))
        return inbox.emptied()

    def _deliver(self, batch: Batch) -> None:
        leaves = self._layout.take_apart(batch.observations)
        for group, inbox in enumerate(self._inboxes):
            chosen = np.flatnonzero(batch.env_ids % 2 == group)
            if len(chosen):
                inbox.put(batch.env_ids[chosen] // 2, chosen, leaves, batch)


class Inbox:
    """Results of a group, until all have come."""

    def __init__(self, size: int) -> None:
        self._size = self.num_missing = size
        self._arrays: list[Array] = []
        self._infos: dict[str, Any] = {}

    def put(self, places: Array, chosen: Array, leaves: list[Array], batch: Batch) -> None:
        """The `chosen` rows of a batch are those of these places in the group."""
        told = [*leaves, batch.rewards, batch.terminations, batch.truncations]
        if not self._arrays:
            self._arrays = [self._room(one) for one in told]
        for room, one in zip(self._arrays, told, strict=True):
            room[places] = one[chosen]
        for name, values in batch.infos.items():
            if isinstance(values, np.ndarray):  # others are nested, and nobody here reads them
                self._infos.setdefault(name, self._room(values))[places] = values[chosen]
        self.num_missing -= len(chosen)

    def _room(self, one: Array) -> Array:
        return np.zeros((self._size, *one.shape[1:]), one.dtype)

    def emptied(self) -> Moment:
        """All of it; there is room again."""
        *leaves, rewards, terminations, truncations = self._arrays
        infos = self._infos
        self._arrays, self._infos, self.num_missing = [], {}, self._size
        return Moment(leaves, rewards, terminations, truncations, infos)
