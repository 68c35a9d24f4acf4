"""Play: how policies decide in environments: alone, as members of a team, or turn by turn.

A *part* is what one policy decides about. In an environment of one agent there is one part, and a
row of it is an environment (`Alone`, here); in one of several agents a row is one agent of one
environment (`teamplay.py`, `turnplay.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from shoal.errors import ConfigError
from shoal.layout import Array, Layout
from shoal.rollout.actor import Actor
from shoal.rollout.draft import Draft, Rows
from shoal.rollout.groups import ENDS, MASK, Group, Moment
from shoal.rollout.masks import Masks
from shoal.rollout.rollout import Rollout, Stamp
from shoal.vector.env import VectorEnv

Made = TypeVar("Made", covariant=True)
"""What a play makes: a rollout, or several."""


class Asked(NamedTuple):
    """About whom a policy has to decide now, and what is known of them."""

    rows: Rows
    """Where that is written down."""
    seats: Rows
    """... and what is remembered of them."""
    places: Rows
    """... and where they are among those of their group."""
    leaves: list[Array]
    masks: Array | None


class Part:
    """What one policy decides about, and how far that has come.

    `num_rows` are decided about in a step at most; something is remembered of each of `num_seats`.
    """

    draft: Draft

    def __init__(self, actor: Actor, layout: Layout, num_rows: int, num_seats: int) -> None:
        _check_readable(layout)
        self.actor, self.layout = actor, layout
        self._num_rows = num_rows
        self.state = actor.initial_state(num_seats)
        """What the policy remembers."""
        self.starts = np.ones(num_seats, np.bool_)
        """Of whom the next decision is the first one of an episode."""

    def begin(self, horizon: int, pages: Sequence[Array] | None = None) -> None:
        """A new rollout; its observations are written onto these pages, if there are any."""
        if pages is not None:
            self.actor.reach(pages)
        self.draft = Draft(horizon, self._num_rows, self.actor.room, pages)

    def finished(self, last_values: Array, stamp: Stamp) -> Rollout:
        """The rollout, which from here on is nobody's but the caller's."""
        draft = self.draft
        del self.draft
        return draft.finished(last_values, self.actor.version, stamp)

    def decide(self, t: int, asked: Asked, noise: Any) -> Array:
        """Let the policy act; actions as environments take them."""
        draft, seats = self.draft, asked.seats
        seen = draft.see(t, asked.rows, asked.leaves)
        state = None if self.state is None else self.state[seats]
        decision = self.actor.act(seen, state, asked.masks, noise[asked.places])
        draft.decide(t, asked.rows, decision, state, asked.masks, self.starts[seats])
        if self.state is not None:
            self.state[seats] = decision.state
        return decision.env_actions

    def value(self, leaves: Sequence[Array], seats: Rows) -> Array:
        """What these observations are worth to them."""
        state = None if self.state is None else self.state[seats]
        return self.actor.value(tuple(leaves), state)

    def forget(self) -> None:
        """Nothing is remembered of anybody: every next decision is a first one."""
        self.end(slice(None), np.ones(len(self.starts), np.bool_))

    def end(self, seats: Rows, ended: Array) -> None:
        """Where an episode has `ended` the next decision is a first one: nothing is remembered."""
        self.starts[seats] = ended
        if self.state is not None and ended.any():
            over = np.arange(len(self.starts))[seats][ended]
            self.state[over] = 0.0


class Play(Protocol[Made]):
    """Who decides about what; `groups` are asked and stepped one after the other."""

    parts: dict[str, Part]
    agents: tuple[str, ...]
    """Of an environment, where there are several."""
    reads: frozenset[str]
    """The infos that it looks at."""
    is_in_place: bool
    """Whether what environments show is what is written down."""

    def begin(self, horizon: int, groups: Sequence[Group], pages: Sequence[Array] | None) -> None:
        """A new rollout, of so many steps; where it is in place, on these pages."""

    def see(self, group: Group, leaves: list[Array], infos: Mapping[str, Any]) -> None:
        """What the environments of a group show, after a reset or when somebody was interrupted."""

    def decide(self, t: int, group: Group) -> Any:
        """What is done about it: actions for these environments."""

    def take(self, t: int, group: Group, moment: Moment) -> Array | None:
        """What came of it; rewards by agent `[num_envs, agents]`, where there are several."""

    def finished(self, groups: Sequence[Group], stamp: Stamp) -> Made:
        """The rollout."""

    def masks(self) -> Array | None:
        """What is possible next, where that cannot be seen from observations."""

    def put_masks(self, masks: Array | None, group: Group) -> None:
        """The same as it was said before."""


class Alone:
    """One policy, environments of one agent each."""

    agents: tuple[str, ...] = ()
    reads = ENDS | {MASK, f"_{MASK}"}
    is_in_place = True

    def __init__(self, actor: Actor, envs: VectorEnv) -> None:
        layout, num_envs = Layout(envs.single_observation_space), envs.num_envs
        self._part = Part(actor, layout, num_envs, num_envs)
        self.parts = {"": self._part}
        self._masks = Masks(layout)
        self._asked: dict[int, Asked] = {}
        self._noise: dict[int, Any] = {}
        self._num_envs = num_envs

    def begin(self, horizon: int, groups: Sequence[Group], pages: Sequence[Array] | None) -> None:
        self._part.begin(horizon, pages)
        for group in groups:
            draw = self._part.actor.noise
            self._noise[group.number] = draw(horizon, len(group.ids), group.random)

    def see(self, group: Group, leaves: list[Array], infos: Mapping[str, Any]) -> None:
        masks, rows = self._masks.found(leaves, infos), group.rows
        self._asked[group.number] = Asked(rows, rows, slice(None), leaves, masks)

    def decide(self, t: int, group: Group) -> Array:
        asked, noise = self._asked[group.number], self._noise[group.number]
        return self._part.decide(t, asked, noise[t])

    def take(self, t: int, group: Group, moment: Moment) -> None:
        draft, rows = self._part.draft, group.rows
        _, rewards, terminations, truncations, infos = moment
        draft.take(t, rows, rewards, terminations, truncations)
        lost = infos.get("restarted")
        if lost is not None:
            draft.valid[t, rows] = ~lost
        truncated = np.flatnonzero(truncations)
        if len(truncated):
            finals = [self._part.layout.take_apart(infos["final_obs"][i]) for i in truncated]
            leaves = [np.stack(leaf) for leaf in zip(*finals, strict=True)]
            ids = group.ids[truncated]
            draft.final_values[t, ids] = self._part.value(leaves, ids)
        self._part.end(rows, terminations | truncations)
        self.see(group, moment.observations, infos)

    def finished(self, groups: Sequence[Group], stamp: Stamp) -> Rollout:
        last_values = np.empty(self._num_envs, np.float32)
        for group in groups:
            leaves = self._asked[group.number].leaves
            last_values[group.rows] = self._part.value(leaves, group.rows)
        return self._part.finished(last_values, stamp)

    def masks(self) -> Array | None:
        said = [(one.rows, one.masks) for one in self._asked.values()]
        known = [masks for _, masks in said if masks is not None]
        if not known:
            return None
        whole: Array = np.ones((self._num_envs, *known[0].shape[1:]), known[0].dtype)
        for rows, masks in said:
            if masks is not None:
                whole[rows] = masks
        return whole

    def put_masks(self, masks: Array | None, group: Group) -> None:
        possible = None if masks is None else masks[group.rows]
        self._asked[group.number] = self._asked[group.number]._replace(masks=possible)


def _check_readable(layout: Layout) -> None:
    if layout.has_objects:
        (odd, *_) = [leaf for leaf in layout.leaves if not leaf.is_array]
        raise ConfigError(
            f"{odd.name('observation')} is a {odd.space}, which no network here can read. Wrap "
            "the environment so that it becomes an array."
        )
