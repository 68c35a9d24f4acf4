"""Actor: what a collector needs of a policy. Arrays in, arrays out, wherever it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from shoal.layout import Array


class Decision(NamedTuple):
    """What a policy does about a batch of observations."""

    actions: Array
    """As they are recorded."""
    env_actions: Array
    """The same as environments take them."""
    log_probs: Array
    values: Array
    state: Array | None
    """A recurrent policy's, after it."""


class Actor(Protocol):
    """Decides, for any number of environments at a time. `state` is None for what has no memory."""

    version: int
    """How often it was updated."""

    def initial_state(self, num_envs: int) -> Array | None:
        """What a policy with a memory remembers when an episode starts: zeros, `[num_envs, h]`."""

    def noise(self, num_steps: int, num_envs: int, random: torch.Generator) -> Any:
        """The chance in so many decisions about so many environments, each one's for `act`."""

    def act(
        self,
        observations: tuple[Array, ...],
        state: Array | None,
        action_masks: Array | None,
        noise: Any,
    ) -> Decision:
        """Draw actions; one array per leaf of the observation space, `[num_envs, ...]`."""

    def room(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array for observations, from which it reads them best."""

    def reach(self, pages: Sequence[Array]) -> None:
        """Get ready to read from these arrays, which others write."""

    def value(self, observations: tuple[Array, ...], state: Array | None) -> Array:
        """What these are worth."""
