"""Rollout: what some environments went through in a stretch of time, as arrays `[time, num_envs]`.

A row of time is what was seen, what was done about it, and what that came to. Where there are
several agents in an environment, what is said here of an environment is true of each of them. Who
holds a rollout may keep it: nothing in it is written to again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shoal.layout import Array


class Stamp(NamedTuple):
    """When a rollout was made."""

    step: int
    """Environment steps of the whole run, up to its end."""
    progress: float
    """How much of the run was behind it, 0 to 1."""
    facts: Mapping[str, float]
    """Metrics about how it came to be."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """The record; who made it, and when, included."""

    observations: tuple[Array, ...]
    """What was seen before each step, one array per leaf of the observation space."""
    actions: Array
    """As the policy drew them: what the environment got may be clipped."""
    action_masks: Array | None
    """Which actions were possible, `[time, num_envs, actions]`; None where all always are."""
    log_probs: Array
    """Of the actions, under the policy that drew them."""
    values: Array
    next_values: Array
    """Of what each step led to: at the end of an episode, of its last observation."""
    states: Array | None
    """A recurrent policy's, before each step."""
    starts: Array
    """Whether each step is the first one of its episode."""
    rewards: Array
    terminations: Array
    truncations: Array
    valid: Array
    """False where nothing is learnt: an environment was lost in that step, or nobody was there."""
    version: int
    """Of the policy: how often it was updated before this."""
    step: int
    progress: float
    facts: Mapping[str, float]
    """When it was made: see `Stamp`."""

    @property
    def num_steps(self) -> int:
        """Steps in all environments together."""
        return int(self.rewards.size)

    def metrics(self) -> dict[str, float]:
        return dict(self.facts)


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Those of several policies, which acted in the same environments at the same time."""

    parts: Mapping[str, Rollout]
    """By the names of the policies."""
    num_steps: int
    """Steps of all environments together, whoever acted in them."""
    step: int
    progress: float
    facts: Mapping[str, float]

    def metrics(self) -> dict[str, float]:
        return dict(self.facts)
