"""A picture of advice: steps per second against environments, with the bound."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from shoal.errors import ConfigError
from shoal.measure.job import BOUND
from shoal.measure.summary import Row


def check_plot(file: str) -> None:
    """ConfigError if it cannot be drawn, or not there: better known before anything is measured."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(
            'matplotlib draws the plot and is not installed: pip install "shoal-rl[train]".'
        )
    folder = os.path.dirname(file) or "."
    if not os.path.isdir(folder):
        raise ConfigError(f"there is no folder {folder!r} for the plot.")


def draw(title: str, rows: Sequence[Row], file: str) -> None:
    """Draw the rows that were measured into a file, whose ending says in which format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if row.rates:
            lines.setdefault(_label(row), []).append((row.job.num_envs, row.steps_per_s))
    for label, points in lines.items():
        points = _highest(points)
        axes.plot(*zip(*points, strict=True), label=label, **_style(label))
    axes.set(xscale="log", xlabel="environments", ylabel="steps/s", title=title)
    axes.set_ylim(bottom=0)
    axes.set_xticks(sorted({row.job.num_envs for row in rows}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.legend(fontsize="small")
    figure.savefig(file)


def _style(label: str) -> dict[str, Any]:
    return {"color": "black", "linestyle": "-."} if label == BOUND else {"marker": "o"}


def _label(row: Row) -> str:
    return BOUND if row.job.contestant == BOUND else row.job.contestant.removeprefix("shoal ")


def _highest(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The best of each number of environments, in order."""
    top: dict[int, float] = {}
    for num_envs, rate in points:
        top[num_envs] = max(rate, top.get(num_envs, 0.0))
    return sorted(top.items())
