"""Pace: how long each environment's steps take, and who keeps others waiting.

Only steps that are sent are timed: where all step together, everyone waits for the slowest anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.engine.rows import Rows

_IN_A_ROW = 8
_TIMES_SLOWER, _SLOW_NS = 10.0, 1_000_000
"""A slow step: so many times the median, and at least so long."""
_LOOK_EVERY = 16


class Pace:
    """How long steps take. Who is slow is so in every step: a machine that is busy with something
    else makes any of them slow now and then."""

    def __init__(self, num_envs: int) -> None:
        self._streaks = np.zeros(num_envs, dtype=np.int64)
        """Slow steps in a row."""
        self._any_streak = False
        self._limit_ns = np.inf
        self._looks = 0

    def note(self, rows: Rows, env_ids: Sequence[int]) -> bool:
        """Sent steps have been taken; whether it is time to look for slow environments."""
        self._looks += 1
        is_time = self._looks % _LOOK_EVERY == 0
        if is_time:
            known = rows.step_ns[rows.step_ns > 0]
            self._limit_ns = max(float(np.median(known)) * _TIMES_SLOWER, _SLOW_NS)
        is_slow = rows.step_ns[env_ids] > self._limit_ns
        if self._any_streak or is_slow.any():
            self._streaks[env_ids] = np.where(is_slow, self._streaks[env_ids] + 1, 0)
            self._any_streak = bool(self._streaks.any())
        return is_time

    def slow(self) -> set[int]:
        """Environments whose steps take many times longer than those of most others."""
        return set(np.flatnonzero(self._streaks >= _IN_A_ROW).tolist())
