"""Steps per second against environments, one small picture for each workload, with the bound."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.plan import name_of
from shoal.measure import BOUND, Record, Row, summarise
from shoal.measure.rivals import family_of

STYLES: dict[str, dict[str, Any]] = {
    "shoal": {"linewidth": 2.0, "marker": "o"},
    "rival": {"linewidth": 1.0, "marker": "x", "linestyle": "--"},
    "native": {"linewidth": 1.0, "marker": "^", "linestyle": ":"},
}


def draw(record: Record, folder: Path) -> list[str]:
    """The names of the pictures drawn; none where matplotlib is missing or nothing can be seen."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    rows = [row for row in summarise(record.outcomes) if row.rates]
    drawn = []
    for env in dict.fromkeys(row.job.env for row in rows):
        of_env = [row for row in rows if row.job.env == env]
        if len({row.job.num_envs for row in of_env}) > 1:
            name = f"{record.stem}-{name_of(env)}.svg"
            _draw_one(env, of_env, folder / name)
            drawn.append(name)
    return drawn


def _draw_one(env: str, rows: Iterable[Row], file: Path) -> None:
    from matplotlib import pyplot

    by_label: dict[str, list[Row]] = {}
    for row in rows:
        label = BOUND if row.job.contestant == BOUND else row.job.label
        by_label.setdefault(label, []).append(row)
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for label, of_label in by_label.items():
        line = sorted((row.job.num_envs, row.steps_per_s) for row in of_label)
        axes.plot(*zip(*line, strict=True), label=label, **_style(of_label[0]))
    axes.set(
        xscale="log", yscale="log", xlabel="environments", ylabel="steps/s", title=name_of(env)
    )
    axes.set_xticks(sorted({row.job.num_envs for one in by_label.values() for row in one}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def _style(row: Row) -> dict[str, Any]:
    if row.job.contestant == BOUND:
        return {"color": "black", "linewidth": 2.0, "linestyle": "-."}
    return STYLES[family_of(row.job.contestant)]
