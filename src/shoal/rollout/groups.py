"""Groups: which environments are stepped together, and who waits for whom.

Usually all are one group: the policy decides about all of them, all take a step, and so on
(`Together`). In two groups one steps while the policy decides about the other (`InTurns`); a worker
with two environments or more has some of both. What happens in an environment does not depend on
when it is received: results of a group are put together, in its order, before anybody sees them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from shoal.engine.batch import Batch
from shoal.layout import Array, Layout
from shoal.vector.env import VectorEnv

MASK = "action_mask"
"""Under which name an environment's infos, or its Dict observations, say what is possible."""
ENDS = frozenset({"final_obs", "restarted"})
"""The infos that tell of the ends of episodes."""


@dataclass(slots=True)
class Group:
    """Environments that are stepped together."""

    number: int
    rows: slice
    """Which of all."""
    ids: Array
    random: torch.Generator
    """Where the chance in what is decided about them comes from."""


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

    def pages(self) -> list[Array] | None:
        """Where steps of the rollout that begins now can put observations, by leaf."""

    def begin(self, group: int, actions: Array, page: int) -> None:
        """Let these take a step; its observations go onto this page, if there is one."""

    def finish(self, group: int) -> Moment:
        """Wait until they have."""

    def forget(self) -> None:
        """Drop what has come of steps that nobody will finish: somebody was interrupted."""


class Together:
    """One group: a step of all."""

    def __init__(self, envs: VectorEnv, layout: Layout, reads: frozenset[str]) -> None:
        self._envs, self._layout = envs, layout
        self.rows = [slice(None)]
        self._actions: Array
        self._page = self._num_pages = 0

    def pages(self) -> list[Array] | None:
        pages = self._envs.pages()
        self._num_pages = 0 if pages is None else len(pages[0])
        return pages

    def begin(self, group: int, actions: Array, page: int) -> None:
        self._actions, self._page = actions, page

    def finish(self, group: int) -> Moment:
        envs, page = self._envs, self._page
        has_page = page < self._num_pages
        results = envs.step_onto(page, self._actions) if has_page else envs.step(self._actions)
        leaves = self._layout.take_apart(results[0])
        return Moment(leaves, *results[1:])

    def forget(self) -> None:
        pass


class InTurns:
    """Two groups, every other environment in each. Of infos there is what somebody `reads`."""

    def __init__(self, envs: VectorEnv, layout: Layout, reads: frozenset[str]) -> None:
        self._envs, self._layout = envs, layout
        self.rows = [slice(0, None, 2), slice(1, None, 2)]
        self._ids = [np.arange(envs.num_envs)[rows] for rows in self.rows]
        self._inboxes = [Inbox(len(ids), reads) for ids in self._ids]

    def pages(self) -> list[Array] | None:
        return None  # what is received comes as it comes

    def begin(self, group: int, actions: Array, page: int) -> None:
        self._envs.send(actions, self._ids[group])

    def finish(self, group: int) -> Moment:
        inbox = self._inboxes[group]
        while inbox.num_missing:
            # When this group is ready, so many are; those of the other may come among them.
            self._deliver(self._envs.recv(inbox.num_missing))
        return inbox.emptied()

    def forget(self) -> None:
        for inbox in self._inboxes:
            inbox.empty()

    def _deliver(self, batch: Batch) -> None:
        leaves = self._layout.take_apart(batch.observations)
        for group, inbox in enumerate(self._inboxes):
            chosen = np.flatnonzero(batch.env_ids % 2 == group)
            if len(chosen):
                inbox.put(batch.env_ids[chosen] // 2, chosen, leaves, batch)


class Inbox:
    """Results of a group, until all have come."""

    def __init__(self, size: int, reads: frozenset[str]) -> None:
        self._size = self.num_missing = size
        self._reads = reads
        self._arrays: list[Array] = []
        self._infos: dict[str, Any] = {}

    def put(self, places: Array, chosen: Array, leaves: list[Array], batch: Batch) -> None:
        """The `chosen` rows of a batch are those of these places in the group."""
        told = [*leaves, batch.rewards, batch.terminations, batch.truncations]
        if not self._arrays:
            self._arrays = [self._room(one) for one in told]
        for room, one in zip(self._arrays, told, strict=True):
            room[places] = one[chosen]
        for name in self._reads & batch.infos.keys():
            values = batch.infos[name]
            self._infos.setdefault(name, self._room(values))[places] = values[chosen]
        self.num_missing -= len(chosen)

    def _room(self, one: Array) -> Array:
        nothing = None if one.dtype == object else 0
        return np.full((self._size, *one.shape[1:]), nothing, one.dtype)

    def emptied(self) -> Moment:
        """All of it; there is room again."""
        *leaves, rewards, terminations, truncations = self._arrays
        infos = self._infos
        self.empty()
        return Moment(leaves, rewards, terminations, truncations, infos)

    def empty(self) -> None:
        """Nothing has come."""
        self._arrays, self._infos, self.num_missing = [], {}, self._size
