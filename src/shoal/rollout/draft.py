"""Draft: a rollout in the making, written step by step into the arrays that it consists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shoal.layout import Array
from shoal.rollout.actor import Decision
from shoal.rollout.returns import next_values_of
from shoal.rollout.rollout import Rollout, Stamp

Room = Callable[[tuple[int, ...], np.dtype[Any]], Array]
Rows = slice | Array
"""Some of all rows; those of a slice are read where they lie."""


class Draft:
    """`rows` are those that something is written down about: environments, or agents in them.

    `room` makes the arrays that observations are written into, unless there are `pages` for them.
    """

    def __init__(
        self,
        horizon: int,
        num_envs: int,
        room: Room = np.empty,
        pages: Sequence[Array] | None = None,
    ) -> None:
        self._shape, self._room, self._given = (shape := (horizon, num_envs)), room, pages
        self.rewards, self.values, self.log_probs = (np.empty(shape, np.float32) for _ in range(3))
        self.terminations, self.truncations, self.starts = (
            np.empty(shape, np.bool_) for _ in range(3)
        )
        self.valid, self.final_values = np.ones(shape, np.bool_), np.zeros(shape, np.float32)
        self.observations: tuple[Array, ...] = ()
        self.actions: Array | None = None
        self.states: Array | None = None
        self.masks: Array | None = None

    def _pages(self, first: Array) -> Array:
        return np.empty((*self._shape, *first.shape[1:]), first.dtype)

    def see(self, t: int, rows: Rows, observations: list[Array]) -> tuple[Array, ...]:
        """Write down what is seen; where that lies now."""
        if not self.observations:
            given: Sequence[Array | None] = self._given or [None] * len(observations)
            self.observations = tuple(map(self._pages_for, given, observations))
        for page, leaf in zip(self.observations, observations, strict=True):
            if not np.may_share_memory(page[t], leaf):  # else workers have written it here
                page[t, rows] = leaf
        return tuple(page[t, rows] for page in self.observations)

    def _pages_for(self, given: Array | None, leaf: Array) -> Array:
        dtype = _single(leaf.dtype)
        if given is not None and given.dtype == dtype:
            return given
        return self._room((*self._shape, *leaf.shape[1:]), dtype)

    def decide(
        self,
        t: int,
        rows: Rows,
        decision: Decision,
        state: Array | None,
        masks: Array | None,
        starts: Array,
    ) -> None:
        """Write down what is done about it, and what the policy remembers."""
        if self.actions is None:
            self.actions = self._pages(decision.actions)
            self.states = None if state is None else self._pages(state)
        self.actions[t, rows] = decision.actions
        self.log_probs[t, rows], self.values[t, rows] = decision.log_probs, decision.values
        self.starts[t, rows] = starts
        if self.states is not None:
            self.states[t, rows] = state
        if masks is not None and self.masks is None:  # all was possible until now
            self.masks = np.ones((*self._shape, *masks.shape[1:]), np.bool_)
        if self.masks is not None:
            self.masks[t, rows] = True if masks is None else masks

    def take(
        self, t: int, rows: Rows, rewards: Array, terminations: Array, truncations: Array
    ) -> None:
        """Write down what that came to."""
        self.rewards[t, rows] = rewards
        self.terminations[t, rows], self.truncations[t, rows] = terminations, truncations

    def finished(self, last_values: Array, version: int, stamp: Stamp) -> Rollout:
        """All of it; `last_values` are those of what the last step led to."""
        ended = self.terminations | self.truncations
        assert self.actions is not None
        return Rollout(
            observations=self.observations,
            actions=self.actions,
            action_masks=self.masks,
            log_probs=self.log_probs,
            values=self.values,
            next_values=next_values_of(self.values, last_values, self.final_values, ended),
            states=self.states,
            starts=self.starts,
            rewards=self.rewards,
            terminations=self.terminations,
            truncations=self.truncations,
            valid=self.valid,
            version=version,
            **stamp._asdict(),
        )


def _single(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """In what precision observations are kept: networks compute in single precision."""
    return np.dtype(np.float32) if dtype == np.float64 else dtype
