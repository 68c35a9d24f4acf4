"""Steps per second against environments, one small picture for each workload, with the bound.

A contestant has one line, with the best of its numbers of workers, in the same colour everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.plan import FIELD, name_of
from shoal.measure import BOUND, Record, Row, summarise
from shoal.measure.rivals import family_of

STYLES: dict[str, dict[str, Any]] = {
    "shoal": {"linewidth": 2.0, "marker": "o"},
    "rival": {"linewidth": 1.0, "marker": "x", "linestyle": "--"},
    "native": {"linewidth": 1.0, "marker": "^", "linestyle": ":"},
}


def draw(record: Record, folder: Path, stem: str) -> list[str]:
    """The names of the pictures drawn; none where matplotlib is missing or nothing can be seen."""
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "shoal"  # the same picture from the same record
    rows = [row for row in summarise(record.outcomes) if row.rates]
    drawn = names(record, stem)
    for env, name in drawn.items():
        _draw_one(env, [row for row in rows if row.job.env == env], folder / name)
    return list(drawn.values())


def names(record: Record, stem: str) -> dict[str, str]:
    """The picture of each environment that was stepped in more than one number."""
    counts: dict[str, set[int]] = {}
    for outcome in record.outcomes:
        if outcome.figures and outcome.figures.steps_per_s is not None:
            counts.setdefault(outcome.job.env, set()).add(outcome.job.num_envs)
    return {env: f"{stem}-{name_of(env)}.svg" for env, seen in counts.items() if len(seen) > 1}


def _draw_one(env: str, rows: Iterable[Row], file: Path) -> None:
    from matplotlib import pyplot

    drawn = lines(rows)
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for contestant, line in drawn.items():
        axes.plot(*zip(*line, strict=True), label=contestant, **_style(contestant))
    axes.set(
        xscale="log", yscale="log", xlabel="environments", ylabel="steps/s", title=name_of(env)
    )
    axes.set_xticks(sorted({num_envs for line in drawn.values() for num_envs, _ in line}))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def lines(rows: Iterable[Row]) -> dict[str, list[tuple[int, float]]]:
    """The best of each contestant by number of environments; who ends above the rest is first."""
    top: dict[str, dict[int, float]] = {}
    for row in rows:
        line, num_envs = top.setdefault(row.job.contestant, {}), row.job.num_envs
        line[num_envs] = max(row.steps_per_s, line.get(num_envs, 0.0))
    found = {contestant: sorted(line.items()) for contestant, line in top.items()}
    return dict(sorted(found.items(), key=lambda one: one[1][-1], reverse=True))


def _style(contestant: str) -> dict[str, Any]:
    if contestant == BOUND:
        return {"color": "black", "linewidth": 2.0, "linestyle": "-."}
    family = family_of(contestant)
    peers = [name for name in FIELD if family_of(name) == family]
    number = peers.index(contestant) if contestant in peers else len(peers)
    return STYLES[family] | {"color": f"C{number % 10}"}
