"""Learning curves: one picture for each task, with a line and a band for each library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.learning.intervals import band, on_grid
from benchmarks.learning.rows import Row
from benchmarks.learning.tasks import LIBRARIES, Task

_POINTS = 50
_COLOURS = {"shoal": "#00796b", "sb3": "#e65100", "sb3_alike": "#5e35b1"}
_RC = {"svg.hashsalt": "shoal", "font.size": 9.0}


def draw(task: Task, rows: Mapping[str, Sequence[Row]], file: Path) -> None:
    """Mean returns of the latest training episodes against steps."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(_RC):  # type: ignore[arg-type]
        figure, axes = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
        for library in task.libraries:
            name = LIBRARIES[library]
            curves = [row.curve for row in rows[library] if row.curve]
            if curves:
                steps, returns = on_grid(curves, _POINTS)
                found, colour = band(returns), _COLOURS[library]
                axes.fill_between(steps, found.low, found.high, color=colour, alpha=0.2, lw=0)
                axes.plot(steps, found.iqm, color=colour, label=f"{name}, {len(curves)} seeds")
        by_chance = [row.score for row in rows.get("random", ())]
        if by_chance:
            label, mean = LIBRARIES["random"], sum(by_chance) / len(by_chance)
            axes.axhline(mean, color="grey", lw=1.2, ls="--", label=label)
        if task.threshold is not None:
            axes.axhline(task.threshold, color="grey", lw=0.8, ls=":")
        axes.set(xlabel="steps", ylabel="return", title=task.title)
        axes.set_xlim(0, task.steps)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, lw=0.5)
        axes.legend(frameon=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, metadata={"Date": None})
        pyplot.close(figure)
