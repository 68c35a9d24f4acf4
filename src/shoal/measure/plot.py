"""Pictures of advice: steps per second against environments, with the bound.

As bars of text for terminals, and by matplotlib for files.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError
from shoal.measure.job import BOUND
from shoal.measure.record import Record
from shoal.measure.summary import Row, summarise
from shoal.measure.table import count

Lines = Mapping[str, Sequence[tuple[int, float]]]
"""By contestant: numbers of environments, and steps per second."""

_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"
_STYLES: Mapping[str, Mapping[str, Any]] = {
    BOUND: {"color": "black", "linestyle": "-.", "linewidth": 1.2, "zorder": 1},
    "serial": {"color": "tab:gray", "marker": "s"},
    "thread": {"color": "tab:green", "marker": "^"},
    "process": {"color": "tab:blue", "marker": "o"},
    "hybrid": {"color": "tab:orange", "marker": "D"},
    "auto": {"color": "tab:red", "marker": "*"},
    "first-ready": {"color": "tab:purple", "marker": "v"},
}
"""The same everywhere, whoever was tried; shapes differ, too, for those who see no colours."""
_RIVAL: Mapping[str, Any] = {"marker": "x", "linestyle": "--", "linewidth": 1.0}


def lines(rows: Sequence[Row]) -> Lines:
    """Of each contestant the best of its numbers of workers; who ends above the rest is first."""
    top: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.rates:
            line, num_envs = top.setdefault(_label(row), {}), row.job.num_envs
            line[num_envs] = max(row.steps_per_s, line.get(num_envs, 0.0))
    found = {label: sorted(line.items()) for label, line in top.items()}
    return dict(sorted(found.items(), key=lambda one: one[1][-1], reverse=True))


def bars(rows: Sequence[Row]) -> str:
    """A bar for each contestant at each number of environments; the longest is the most."""
    found = lines(rows)
    most = max((rate for line in found.values() for _, rate in line), default=0.0) or 1.0
    width = max(map(len, found), default=0)
    parts = []
    for num_envs in _env_counts(found):
        here = [(dict(line).get(num_envs, 0.0), label) for label, line in found.items()]
        parts.append(f"steps/s, {num_envs} environments")
        for rate, label in sorted((one for one in here if one[0]), reverse=True):
            parts.append(f"  {label:<{width}}  {_bar(rate / most)} {count(rate)}")
    return "\n".join(parts)


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
    figure_of(title, rows).savefig(file, dpi=150)


def draw_each(record: Record, folder: Path, stem: str) -> list[str]:
    """One picture for each environment; those drawn. None where nothing can be seen.

    That is without matplotlib, and where there is only one number of environments.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return []
    rows = [row for row in summarise(record.outcomes) if row.rates]
    drawn = []
    for env in dict.fromkeys(row.job.env for row in rows):
        of_env = [row for row in rows if row.job.env == env]
        if len({row.job.num_envs for row in of_env}) > 1:
            name = re.sub(r"[^\w.-]+", "-", env)
            drawn.append(f"{stem}-{name}.svg")
            draw(env, of_env, str(folder / drawn[-1]))
    return drawn


def figure_of(title: str, rows: Sequence[Row]) -> Any:
    """The picture, as a matplotlib Figure."""
    from matplotlib.figure import Figure

    found = lines(rows)
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    for label, line in found.items():
        axes.plot(*zip(*line, strict=True), label=label, **_STYLES.get(label, _RIVAL))
    axes.set(xscale="log", xlabel="environments", ylabel="steps/s", title=title)
    axes.set_ylim(bottom=0)
    axes.set_xticks(_env_counts(found))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _env_counts(found: Lines) -> list[int]:
    return sorted({num_envs for line in found.values() for num_envs, _ in line})


def _bar(share: float) -> str:
    """As long as its share of the longest, to an eighth of a letter."""
    eighths = round(share * _WIDTH * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()).ljust(_WIDTH)


def _label(row: Row) -> str:
    return BOUND if row.job.contestant == BOUND else row.job.contestant.removeprefix("shoal ")
