"""Interquartile means and their bootstrap intervals, by rliable (Agarwal et al. 2021)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from shoal.layout import Array

CONFIDENCE = 0.95
RESAMPLES = 20_000
_BAND_RESAMPLES = 2_000


class Interval(NamedTuple):
    """A number, or numbers, and between which they lie."""

    iqm: Any
    low: Any
    high: Any


def interval(scores: Sequence[float]) -> Interval:
    """Of the scores of some seeds."""
    each = np.asarray(scores, dtype=np.float64)[:, None]  # [seeds, tasks = 1]
    return Interval(*(float(one[0]) for one in _estimated(each, _iqm_of_all, RESAMPLES)))


def band(curves: Array) -> Interval:
    """Of curves `[seeds, points]`, point by point."""
    return Interval(*_estimated(curves[:, None, :], _iqm_of_points, _BAND_RESAMPLES))


def on_grid(curves: Sequence[Sequence[tuple[int, float]]], num_points: int) -> tuple[Array, Array]:
    """Curves `[seeds, points]` at the same steps, from where all have begun to where all end."""
    first = max(curve[0][0] for curve in curves)
    last = min(curve[-1][0] for curve in curves)
    steps = np.linspace(first, last, num_points)
    each = [np.asarray(curve, dtype=np.float64).T for curve in curves]
    return steps, np.stack([np.interp(steps, *points) for points in each])


def _estimated(
    scores: Array, iqm: Callable[[Array], Array], num_resamples: int
) -> tuple[Array, Array, Array]:
    from rliable import library

    with _drawing_alike():
        points, intervals = library.get_interval_estimates(
            {"": scores}, iqm, reps=num_resamples, confidence_interval_size=CONFIDENCE
        )
    low, high = intervals[""]
    return points[""], low, high


@contextmanager
def _drawing_alike() -> Iterator[None]:
    """While the same rows give the same intervals: rliable draws from NumPy's global generator."""
    before = np.random.get_state()
    np.random.seed(0)
    try:
        yield
    finally:
        np.random.set_state(before)


def _iqm_of_all(scores: Array) -> Array:
    from rliable import metrics

    return np.array([metrics.aggregate_iqm(scores)])


def _iqm_of_points(scores: Array) -> Array:
    """The same for many points at once, [seeds, 1, points] to [points]."""
    from scipy.stats import trim_mean

    found: Array = trim_mean(scores[:, 0], 0.25, axis=0)
    return found
