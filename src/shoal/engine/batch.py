"""Batch: what some environments have come to. The one tuple that engine and users share."""

from __future__ import annotations

from typing import Any, NamedTuple

from shoal.layout import Array


class Batch(NamedTuple):
    """Results of some environments, ascending by id; row k of everything is `env_ids[k]`."""

    observations: Any
    rewards: Array
    terminations: Array
    truncations: Array
    infos: dict[str, Any]
    env_ids: Array
