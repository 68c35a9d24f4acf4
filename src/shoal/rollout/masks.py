"""Action masks: what environments say of possible actions, in infos or in Dict observations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.engine.masks import MASK, mask_in
from shoal.layout import Array, Layout


class Masks:
    """Finds those of a batch."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        space = layout.space
        self._in_observations = isinstance(space, spaces.Dict) and MASK in space.spaces

    def found(self, leaves: list[Array], infos: Mapping[str, Any]) -> Array | None:
        """`[num_envs, choices]`; None where all is possible."""
        if MASK not in infos and not self._in_observations:
            return None
        observation = self._layout.assemble(leaves) if self._in_observations else None
        said = mask_in(observation, infos)
        return None if said is None else _as_one(said, infos.get(f"_{MASK}"))


def _as_one(masks: Any, present: Array | None) -> Array | None:
    """One who has said nothing forbids nothing."""
    possible = np.asarray(masks)
    if possible.dtype == object:  # lists, or tuples of one for each choice
        said = [one for one in possible if one is not None]
        if not said:
            return None
        free = np.ones_like(_flat(said[0]))
        possible = np.stack([free if one is None else _flat(one) for one in possible])
    possible = possible.astype(np.bool_)
    return possible if present is None else possible | ~np.asarray(present)[:, None]


def _flat(mask: Any) -> Array:
    return np.hstack([np.asarray(part) for part in mask])
