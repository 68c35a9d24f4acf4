"""Shares: which agents of a cast a policy plays, and what they are told, cut out of what all are.

Agents of one share are alike. Rows of a share are `[num_envs * agents]`, environment by
environment, so that one forward pass decides about all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.errors import ConfigError
from shoal.layout import Array, Layout
from shoal.vector.agents.cast import Cast, num_choices

Told = Mapping[str, Any]
"""What the environments of several agents observe: see `vector/agents/together.py`."""


class Share:
    """The agents (numbers) that one policy plays.

    `is_central`: for its critic, what all agents see is a part of what each of them sees.
    """

    def __init__(self, cast: Cast, agents: Sequence[int], is_central: bool = False) -> None:
        self.agents = np.array(agents)
        self._cast, self.is_central = cast, is_central
        first = agents[0]
        self.own_space = cast.observation_spaces[first]
        self.action_space = cast.action_spaces[first]
        self.choices = num_choices(self.action_space)
        self._own = Layout(self.own_space)
        if is_central:
            _check_numbers(cast)

    def __len__(self) -> int:
        return len(self.agents)

    @cached_property
    def central_space(self) -> spaces.Box | None:
        """What only the critic sees: what all agents do, in one row."""
        if not self.is_central:
            return None
        size = sum(_width(one) for one in self._cast.observation_spaces)
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    @cached_property
    def layout(self) -> Layout:
        """That of what a network is given."""
        central = self.central_space
        return self._own if central is None else Layout(spaces.Tuple((self.own_space, central)))

    def seen_at_once(self, observations: Any) -> list[Array]:
        """What these agents see, one array for each leaf, from what all do, all at once."""
        cast, own = self._cast, self._own
        if cast.sees_alike:
            every = own.take_apart(observations)
            leaves = [
                _rows(leaf if len(self) == len(cast) else leaf[:, self.agents]) for leaf in every
            ]
        else:
            each = [own.take_apart(observations[k]) for k in self.agents]
            leaves = [_rows(np.stack(leaf, axis=1)) for leaf in zip(*each, strict=True)]
        if self.is_central:
            leaves.append(np.repeat(self._of_all(observations), len(self), axis=0))
        return leaves

    def _of_all(self, observations: Any) -> Array:
        """`[num_envs, size]`: what all see, in one row."""
        cast = self._cast
        parts = [cast.part(observations, k, cast.sees_alike) for k in range(len(cast))]
        flat = [
            leaf.reshape(len(leaf), -1).astype(np.float32)
            for part, space in zip(parts, cast.observation_spaces, strict=True)
            for leaf in Layout(space).take_apart(part)
        ]
        return np.concatenate(flat, axis=1)

    def possible(self, masks: Array | None, alive: Array) -> Array | None:
        """What these agents may do; None where all of them may do everything.

        The dead, about whom nothing is decided, may do anything.
        """
        if masks is None or not self.choices:
            return None
        own = masks[:, self.agents, : self.choices].astype(np.bool_) | ~alive[:, self.agents, None]
        return None if own.all() else _rows(own)

    def column(self, values: Array) -> Array:
        """What is told of all agents, of these."""
        return _rows(values if len(self) == len(self._cast) else values[:, self.agents])


def joined(cast: Cast, shares: Sequence[Share], actions: Sequence[Array]) -> Any:
    """What each share does, as one action for each environment."""
    each = [
        one.reshape(-1, len(share), *one.shape[1:])
        for share, one in zip(shares, actions, strict=True)
    ]
    if not cast.acts_alike:
        found = {
            int(k): one[:, at]
            for share, one in zip(shares, each, strict=True)
            for at, k in enumerate(share.agents)
        }
        return tuple(found[k] for k in range(len(cast)))
    if len(shares) == 1:
        return each[0]
    whole = np.empty((len(each[0]), len(cast), *each[0].shape[2:]), each[0].dtype)
    for share, one in zip(shares, each, strict=True):
        whole[:, share.agents] = one
    return whole


def _rows(values: Array) -> Array:
    """`[num_envs, agents, ...]`, row by row."""
    return values.reshape(-1, *values.shape[2:])


def _width(space: spaces.Space[Any]) -> int:
    return sum(int(np.prod(leaf.shape)) for leaf in Layout(space).leaves)


def _check_numbers(cast: Cast) -> None:
    for name, space in zip(cast.names, cast.observation_spaces, strict=True):
        odd = [leaf for leaf in Layout(space).leaves if not leaf.is_array or len(leaf.shape) > 1]
        if odd:
            raise ConfigError(
                f"a central critic sees what all agents do, in one row, and {name!r} sees a "
                f"{odd[0].space}. Set central_critic to false, or flatten observations."
            )
