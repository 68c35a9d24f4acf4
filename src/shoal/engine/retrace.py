"""Retracing: an episode taken once more, from its record, in an environment that was just built.

What a rebuilt worker does to go on where it was, and what a capsule does to get there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from shoal.engine import generators
from shoal.engine.commands import Episode
from shoal.errors import ContractError, shown
from shoal.layout import Layout
from shoal.seeding import Seed


class Moment(NamedTuple):
    """Where a retraced episode is."""

    length: int
    """Steps so far; 0 just after the reset."""
    observation: Any
    episode_return: float
    ended: bool


def retrace(
    env: Any,
    episode: Episode,
    layout: Layout,
    *,
    seed: Seed,
    set_attr: Callable[[str, Any], None],
    watch: Callable[[int], None],
) -> Iterator[Moment]:
    """Reset and take the recorded steps; the moments after each, as far as the episode goes.

    `layout` is that of the action space, `seed` the last explicit one. `watch` is called before
    each step with its number. Attributes change where they were changed. An episode that ends
    early is not stepped on: see `difference`.
    """
    if episode.args.seed is None:
        generators.put_back(getattr(env, "unwrapped", env), episode.generator, seed)
    observation, _ = env.reset(**episode.args.keywords(takes_options(env)))
    moment = Moment(0, observation, 0.0, False)
    yield moment
    changes = list(episode.changes)
    for k, action in enumerate(episode.each_action(layout)):
        watch(k)
        while changes and changes[0][0] <= k:
            set_attr(*changes.pop(0)[1:])
        observation, reward, terminated, truncated, _ = env.step(action)
        total = moment.episode_return + (reward if type(reward) is float else number(reward))
        moment = Moment(k + 1, observation, total, bool(terminated) or bool(truncated))
        yield moment
        if moment.ended:
            break
    for _, name, value in changes:
        set_attr(name, value)


def difference(last: Moment, episode: Episode) -> str:
    """How the last moment differs from what the record says, observations aside; "" if not."""
    if last.length < episode.length:
        return f"its episode ended after {last.length} steps, not after {episode.length}"
    if last.ended != episode.is_over:
        return f"its episode {'ended' if last.ended else 'did not end'} this time"
    total = last.episode_return
    if not np.array_equal(total, episode.episode_return, equal_nan=True):
        return f"its return so far is {total}, not {episode.episode_return}"
    return ""


def takes_options(env: Any) -> bool:
    """Whether its `reset` has a word for options: some environments, written for others, do not."""
    try:
        parameters = inspect.signature(getattr(env, "unwrapped", env).reset).parameters.values()
    except (TypeError, ValueError):  # some written in C have none
        return True
    return any(one.name == "options" or one.kind is one.VAR_KEYWORD for one in parameters)


def number(reward: Any) -> float:
    """A reward as a float; arrays of one element are accepted, as Gymnasium's plain loop does."""
    if isinstance(reward, np.ndarray | list | tuple) and np.size(reward) == 1:
        reward = np.reshape(reward, ())[()]
    try:
        if not isinstance(reward, str | bytes | np.ndarray):
            return float(reward)
    except (TypeError, ValueError):
        pass
    raise ContractError(f"the reward is {shown(reward)}; expected one real number.")
