"""Cast: the agents of an environment, and how what they see and do lies in rows.

Agents that are alike share one array, `[num_agents, ...]`, so that a batch of environments is
`[num_envs, num_agents, ...]` without a copy; agents that differ have one each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from shoal.engine.masks import MASK, mask_in
from shoal.errors import ConfigError, ContractError
from shoal.layout import Array, Layout

Space = spaces.Space[Any]
CAST = "cast"
"""Under which name an environment's metadata tell who is in it."""
TAKES_TURNS = "takes_turns"
"""... and whether they act one after the other."""
OURS = frozenset({CAST, TAKES_TURNS})
"""What metadata say to Shoal alone, and not to whoever holds the environments."""


@dataclass(frozen=True)
class Cast:
    """Agents by name, in the order of their numbers."""

    names: tuple[Any, ...]
    observation_spaces: tuple[Space, ...]
    action_spaces: tuple[Space, ...]

    @classmethod
    def of(cls, env: Any) -> Cast:
        """That of a PettingZoo environment with `possible_agents`."""
        names = tuple(env.possible_agents)
        if not names:
            raise ConfigError(f"{env} has no agents: possible_agents is empty.")
        return cls(
            names, tuple(map(env.observation_space, names)), tuple(map(env.action_space, names))
        )

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def number(self) -> dict[Any, int]:
        """Of each agent."""
        return {name: k for k, name in enumerate(self.names)}

    def numbered(self, name: Any) -> int:
        """The number of an agent; an error for one that nobody spoke of."""
        try:
            return self.number[name]
        except KeyError:
            raise ContractError(
                f"there is an agent {name!r}, whom possible_agents does not hold: "
                f"{list(self.names)}."
            ) from None

    @cached_property
    def sees_alike(self) -> bool:
        """Whether all observe the same space, and that in arrays."""
        first, *others = self.observation_spaces
        return all(one == first for one in others) and not Layout(first).has_objects

    @cached_property
    def acts_alike(self) -> bool:
        first, *others = self.action_spaces
        return all(one == first for one in others) and not Layout(first).has_objects

    @cached_property
    def num_choices(self) -> int:
        """How long an action mask is: of the agent with most choices; 0 where there are none."""
        return max(map(num_choices, self.action_spaces))

    # --- all at once ------------------------------------------------------------------------

    @cached_property
    def observation_space(self) -> Space:
        """Of all agents together."""
        return _joined(self.observation_spaces, self.sees_alike)

    @cached_property
    def action_space(self) -> Space:
        return _joined(self.action_spaces, self.acts_alike)

    def part(self, values: Any, k: int, is_alike: bool) -> Any:
        """One agent's part of a batch of what all have."""
        return _column(values, k) if is_alike else values[k]


def _joined(each: Sequence[Space], is_alike: bool) -> Space:
    return batch_space(each[0], len(each)) if is_alike else spaces.Tuple(each)


def _column(values: Any, k: int) -> Any:
    if isinstance(values, dict):
        return {key: _column(one, k) for key, one in values.items()}
    if isinstance(values, tuple):
        return tuple(_column(one, k) for one in values)
    return values[:, k]


def num_choices(space: Space) -> int:
    """How long an action mask for it is."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    return 0


def mask_of(observation: Any, info: Any, count: int) -> Array | None:
    """What an agent may do, of so many choices; None where its environment does not say."""
    said = mask_in(observation, info)
    if said is None:
        return None
    if type(said) is np.ndarray and said.shape == (count,):  # as nearly always
        return said.astype(np.bool_)
    given = said if isinstance(said, tuple) else (said,)
    mask = np.concatenate([np.ravel(one) for one in given]).astype(np.bool_)
    if len(mask) != count:
        raise ContractError(
            f"{MASK} has {len(mask)} entries; expected {count}, one for each choice."
        )
    return mask
