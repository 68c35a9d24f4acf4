"""Pace: how long each environment's steps take, and who keeps others waiting.

Only steps that are sent are timed: where all step together, everyone waits for the slowest anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.engine.rows import Rows

_NEWEST = 0.2
"""Weight of the newest step in the mean."""
_STEPS_KNOWN = 8
_TIMES_SLOWER, _SLOW_NS = 10.0, 1e6
"""From when on an environment is slow: so many times the median, and at least so long."""
_LOOK_EVERY = 16


class Pace:
    """Mean time of a step, of each environment."""

    def __init__(self, num_envs: int) -> None:
        self._mean_ns = np.zeros(num_envs)
        self._count = np.zeros(num_envs, dtype=np.int64)
        self._looks = 0

    def note(self, rows: Rows, env_ids: Sequence[int]) -> bool:
        """Sent steps have been taken; whether it is time to look for slow environments."""
        took_ns = rows.step_ns[env_ids]
        weight = np.where(self._count[env_ids] == 0, 1.0, _NEWEST)
        self._mean_ns[env_ids] += weight * (took_ns - self._mean_ns[env_ids])
        self._count[env_ids] += 1
        self._looks += 1
        return self._looks % _LOOK_EVERY == 0

    def slow(self) -> set[int]:
        """Environments whose steps take many times longer than those of most others."""
        known = self._count >= _STEPS_KNOWN
        if not known.any():
            return set()
        limit_ns = max(float(np.median(self._mean_ns[known])) * _TIMES_SLOWER, _SLOW_NS)
        return set(np.flatnonzero(known & (self._mean_ns > limit_ns)).tolist())
