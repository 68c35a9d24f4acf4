"""Where environments say which actions are possible: in the info, or in a Dict observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MASK = "action_mask"


def mask_in(observation: Any, info: Mapping[str, Any] | None) -> Any:
    """What is said of possible actions, of one environment or of a batch; None where nothing is.

    The info has precedence: wrappers that know better than the environment write there.
    """
    mask = None if info is None else info.get(MASK)
    return observation.get(MASK) if mask is None and isinstance(observation, dict) else mask
