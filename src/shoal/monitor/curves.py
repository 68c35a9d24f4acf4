"""`curves.png`, drawn from `metrics.jsonl`: what has been learnt, and how fast.

A panel for the return, one for each of `PANELS` that has data, and one for each name that nobody
here knows.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.extras import needs
from shoal.monitor import jsonl, whole
from shoal.monitor.jsonl import Row
from shoal.monitor.metrics import METRICS, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import HashableList

Numbers = npt.NDArray[np.float64]

MAX_POINTS = 2000
"""Of one name; a picture has no room for more."""
FEW_POINTS = 40
"""So many are marked, and not smoothed: a line through one or two is not seen."""
SMOOTHED = 25
"""A strong line through noise is the mean of this part of its points."""
DOTS_PER_INCH = 120


class Panel(NamedTuple):
    """What is drawn together."""

    line: str
    """Drawn strongly; where it has no points, smoothed over itself."""
    points: str | None = None
    """Drawn faintly behind it."""


RETURN = Panel("episode/return_mean", "episode/return")
PANELS = (
    Panel("episode/length_mean", "episode/length"),
    Panel("engine/steps_per_s"),
    Panel("train/policy_loss"),
    Panel("train/value_loss"),
    Panel("train/entropy"),
    Panel("train/approx_kl"),
)


@dataclass(slots=True)
class Series:
    """The points of one name; when there are too many, every second one goes."""

    steps: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    _stride: int = 1
    _count: int = 0

    def add(self, step: float, value: float) -> None:
        if self._count % self._stride == 0:
            self.steps.append(step)
            self.values.append(value)
        self._count += 1
        if len(self.steps) > MAX_POINTS:
            del self.steps[1::2], self.values[1::2]
            self._stride *= 2


Table = dict[str, Series]


def draw(jsonl_path: str | Path, png_path: str | Path, title: str | None = None) -> None:
    """Draw a run, whole or not at all; a file that is not there is one without rows.

    The title is the name of the run's folder, unless another is given. ConfigError where matplotlib
    is not installed.
    """
    source, target = Path(jsonl_path), Path(png_path)
    table = collect(jsonl.rows(source) if source.exists() else ())
    figure = _figure(table, source.absolute().parent.name if title is None else title)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=DOTS_PER_INCH, format="png")
    target.parent.mkdir(parents=True, exist_ok=True)
    whole.write(target, [picture.getbuffer()])


def collect(rows: Iterable[Row]) -> Table:
    """From rows to columns, never more than `MAX_POINTS` of each name."""
    table: Table = {}
    for row in rows:
        for name, value in row.items():
            if name != "step":
                table.setdefault(name, Series()).add(row["step"], value)
    return table


def _figure(table: Table, title: str) -> Figure:
    with needs("matplotlib", "train"):
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    panels = list(_panels(table))
    num_rows = (len(panels) + 1) // 2
    layout = ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08)
    figure = Figure(figsize=(10, 4.2 + 2.6 * num_rows), layout=layout)
    figure.suptitle(title, fontsize=15, fontweight="bold")
    places = figure.subplot_mosaic(_mosaic(len(panels)), height_ratios=[3.6] + [2.6] * num_rows)
    _draw_return(places["0"], table)
    for place, panel in enumerate(panels, 1):
        _draw_panel(places[str(place)], panel, table)
    for axes in places.values():
        _finish(axes)
    return figure


def _panels(table: Table) -> Iterator[Panel]:
    for panel in PANELS:
        if panel.line in table or panel.points in table:
            yield panel
    for name in table:
        if name not in METRICS:
            yield Panel(name)


def _mosaic(num_panels: int) -> list[HashableList[str]]:
    """The first over the whole width, the others two in a row."""
    mosaic: list[HashableList[str]] = [["0", "0"]]
    for place in range(1, num_panels + 1, 2):
        mosaic.append([str(place), str(place + 1) if place < num_panels else "."])
    return mosaic


def _draw_return(axes: Axes, table: Table) -> None:
    _draw_panel(axes, RETURN, table)
    axes.set_title("Return", fontsize=12, loc="left")
    axes.set_ylabel("return", fontsize=10)
    if "eval/return_mean" in table:
        steps, values = _finite(table["eval/return_mean"])
        label = "evaluation ± std"
        spreads = _spreads(table, steps)
        axes.errorbar(steps, values, spreads, fmt="D", color="C3", ms=5, capsize=3, label=label)
    if axes.has_data():  # on the line of the title, where no curve can be
        axes.legend(fontsize=9, frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))


def _spreads(table: Table, steps: Numbers) -> Numbers:
    spreads = table.get("eval/return_std", Series())
    known = dict(zip(spreads.steps, spreads.values, strict=True))
    return np.nan_to_num([known.get(step, 0.0) for step in steps])


def _draw_panel(axes: Axes, panel: Panel, table: Table) -> None:
    meaning, (_, _, short) = describe(panel.line), panel.line.rpartition("/")
    title = meaning if panel.line == meaning else meaning[0].upper() + meaning[1:]
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_ylabel(short.replace("_", " "), fontsize=10)
    if panel.points in table:
        steps, values = _finite(table[panel.points])
        axes.plot(steps, values, ".", color="C0", alpha=0.25, ms=4, label=describe(panel.points))
    if panel.line in table:
        steps, values = _finite(table[panel.line])
        if panel.points is None and len(steps) > FEW_POINTS:
            axes.plot(steps, values, color="C0", alpha=0.3, lw=0.8)
            steps, values = _smooth(steps), _smooth(values)
        style = "o-" if len(steps) <= FEW_POINTS else "-"
        axes.plot(steps, values, style, color="C0", lw=1.8, ms=4, label=meaning)


def _smooth(numbers: Numbers) -> Numbers:
    """Means over a window that moves along; as long as the whole, less the window."""
    width = max(1, len(numbers) // SMOOTHED)
    return np.convolve(numbers, np.full(width, 1 / width), mode="valid")


def _finite(series: Series) -> tuple[Numbers, Numbers]:
    steps, values = np.asarray(series.steps), np.asarray(series.values)
    known = np.isfinite(values)
    return steps[known], values[known]


def _finish(axes: Axes) -> None:
    axes.set_xlabel("environment steps", fontsize=10)
    axes.tick_params(labelsize=9)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.has_data():
        axes.xaxis.set_major_formatter(_short)
        axes.set_xlim(left=0)
    else:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "nothing recorded yet", ha="center", transform=axes.transAxes)


def _short(steps: float, _place: float) -> str:
    """20k, 1.5M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(steps) >= size:
            return f"{steps / size:g}{unit}"
    return f"{steps:g}"
