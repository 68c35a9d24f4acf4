"""Order: from turns as they happened to the decisions of each agent, and what became of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.layout import Array
from shoal.rollout.draft import Draft
from shoal.rollout.rollout import Rollout, Stamp


class Tidings(NamedTuple):
    """What agents were told at their turns, `[time + 1, num_envs]`: also after the last step."""

    agents: Array
    """Whose turn it was."""
    rewards: Array
    """What that agent got since its turn before."""
    terminations: Array
    truncations: Array
    values: Array
    """Of what an agent that was truncated saw last, and of what is to be decided about next."""
    begins: Array
    """Whether this was the first turn of an episode."""

    @classmethod
    def blank(cls, horizon: int, num_envs: int) -> Tidings:
        shape = (horizon + 1, num_envs)
        numbers = (np.zeros(shape, np.float32) for _ in range(2))
        rewards, values = numbers
        ended, cut, begins = (np.zeros(shape, np.bool_) for _ in range(3))
        return cls(np.zeros(shape, np.int64), rewards, ended, cut, values, begins)


class Order(NamedTuple):
    """Decisions in the order of each agent, and what they came to."""

    length: int
    """The most decisions of any agent."""
    num_rows: int
    at: tuple[Array, Array]
    """Where decisions are among steps: `[decisions]` times and environments."""
    to: tuple[Array, Array]
    """Where they are in the order of their agents: numbers and rows."""
    rewards: Array
    terminations: Array
    truncations: Array
    next_values: Array
    valid: Array
    """`[decisions]`: whether what they came to is known."""


def arrange(decided: Array, agents: Array, values: Array, tidings: Tidings) -> Order:
    """Put the decisions about these agents into the order of each, with what became of them.

    `decided` and `values` are `[time, num_envs]`. What a decision led to is told at the next turn
    of the same agent in the same episode.
    """
    horizon, num_envs = decided.shape
    column = np.full(int(max(agents.max(), tidings.agents.max())) + 1, -1)
    column[agents] = np.arange(len(agents))
    columns, envs = column[tidings.agents], np.arange(num_envs)
    told_at = np.full((horizon, num_envs), -1)
    coming = np.full((num_envs, len(agents)), -1)
    for t in range(horizon, -1, -1):
        own = envs[columns[t] >= 0]
        if t < horizon:
            told_at[t, own] = coming[own, columns[t, own]]
        coming[own, columns[t, own]] = t
        coming[tidings.begins[t]] = -1
    times, places = np.nonzero(decided)
    rows = places * len(agents) + columns[times, places]
    numbers, length = _ranks(rows, num_envs * len(agents))
    when = told_at[times, places]
    told = np.where(when < 0, horizon, when)
    known = np.concatenate([np.where(decided, values, 0.0), tidings.values[-1:]])
    ended = (tidings.terminations | tidings.truncations)[told, places]
    return Order(
        length,
        num_envs * len(agents),
        (times, places),
        (numbers, rows),
        tidings.rewards[told, places],
        tidings.terminations[told, places],
        tidings.truncations[told, places],
        np.where(ended, tidings.values[told, places], known[told, places]),
        when >= 0,
    )


def _ranks(rows: Array, num_rows: int) -> tuple[Array, int]:
    """How many of the same row come before each; and the most there are of one."""
    counts = np.bincount(rows, minlength=num_rows)
    order = np.argsort(rows, kind="stable")
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = np.arange(len(rows)) - first[rows[order]]
    return ranks, int(counts.max(initial=0))


def in_order(draft: Draft, order: Order, version: int, stamp: Stamp) -> Rollout | None:
    """The rollout of these agents, rows of whom are agents of an environment; None without any.

    Agents have had unequally many turns: what is missing at the end of a row is not valid.
    """
    if draft.actions is None:
        return None

    def moved(values: Array) -> Array:
        return placed(values[order.at])

    def placed(values: Array) -> Array:
        room = np.zeros((order.length, order.num_rows, *values.shape[1:]), values.dtype)
        room[order.to] = values
        return room

    masks = None
    if draft.masks is not None:
        masks = np.ones((order.length, order.num_rows, *draft.masks.shape[2:]), np.bool_)
        masks[order.to] = draft.masks[order.at]
    return Rollout(
        observations=tuple(map(moved, draft.observations)),
        actions=moved(draft.actions),
        action_masks=masks,
        log_probs=moved(draft.log_probs),
        values=moved(draft.values),
        next_values=placed(order.next_values.astype(np.float32)),
        states=None if draft.states is None else moved(draft.states),
        starts=moved(draft.starts),
        rewards=placed(order.rewards),
        terminations=placed(order.terminations),
        truncations=placed(order.truncations),
        valid=placed(order.valid),
        version=version,
        **stamp._asdict(),
    )
