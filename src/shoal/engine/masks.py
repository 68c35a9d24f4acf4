"""Where environments say which actions are possible: in the info, or in a Dict observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

MASK = "action_mask"


def mask_in(observation: Any, info: Mapping[str, Any] | None) -> Any:
    """What is said of possible actions, of one environment or of a batch; None where nothing is.

    The info has precedence: wrappers that know better than the environment write there.
    """
    mask = None if info is None else info.get(MASK)
    return observation.get(MASK) if mask is None and isinstance(observation, dict) else mask


def sampled(space: spaces.Space[Any], mask: Any) -> Any:
    """Any action of this space that a mask allows; without one (None) any at all."""
    if mask is None or not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return space.sample()
    parts = mask if isinstance(mask, tuple) else (mask,)
    flat = np.concatenate([np.ravel(part) for part in parts]).astype(np.int8)
    if isinstance(space, spaces.Discrete):
        return space.sample(flat)
    return space.sample(tuple(np.split(flat, np.cumsum(space.nvec)[:-1])))
