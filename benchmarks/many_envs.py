"""The pictures of `docs/how-many-envs.md`, from records: `python -m benchmarks.many_envs`.

Steps per second against environments: of environments alone (`make bench-full`, or `make bench`),
and of whole training (`python -m benchmarks.train speedup`). Which records fit is told by what they
hold: of each machine the one with most numbers of environments, of such the newest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks import plots
from benchmarks.plan import RESULTS, ROOT, name_of
from benchmarks.training.plan import OURS
from benchmarks.training.task import Record as Training
from shoal.errors import ConfigError
from shoal.measure import BOUND, Record, Row, summarise

IMAGES = ROOT / "docs" / "images"
Lines = Mapping[str, Sequence[tuple[int, float]]]
"""By name: numbers of environments, and steps per second."""
Panels = Mapping[str, Lines]

Kept = TypeVar("Kept", Record, Training)

ALONE = ("cartpole", "work-50us")
SHOWN = {BOUND: "bound", "shoal serial": "serial", "shoal process": "process"}
SHOWN |= {"shoal hybrid": "hybrid"}


def main() -> int:
    for name, panels in (
        ("many-envs-steps", of_environments(stepping(RESULTS)[0])),
        ("many-envs-training", of_training(trainings(RESULTS))),
    ):
        print(draw(panels, IMAGES / f"{name}.svg"))
    return 0


# --- which records ------------------------------------------------------------------------------


def stepping(folder: Path) -> list[Record]:
    """Those that have every line that is shown, with more than one number of environments."""
    texts = _texts(folder, "outcomes")
    records = [Record.from_json(text) for text in texts]
    fit = [(least, record) for record in records if (least := _least(record)) > 1]
    wanted = f"{' and '.join(ALONE)} on {', '.join(SHOWN)}, each with two numbers of environments"
    return _best(fit, len(texts), folder, wanted, "make bench")


def trainings(folder: Path) -> list[Training]:
    texts = _texts(folder, "answers")
    records = [record for record in map(Training.from_json, texts) if record.kind == "speedup"]
    fit = [(len({one.task.n_envs for one in record.answers}), record) for record in records]
    wanted = "whole training with several numbers of environments"
    return _best(fit, len(texts), folder, wanted, "python -m benchmarks.train speedup")


def _texts(folder: Path, holds: str) -> list[str]:
    texts = [path.read_text() for path in sorted(folder.glob("*.json"))]
    return [text for text in texts if holds in json.loads(text)]


def _least(record: Record) -> int:
    """Numbers of environments in the shortest line."""
    return min(len(line) for lines in of_environments(record).values() for line in lines.values())


def _best(
    fit: Iterable[tuple[int, Kept]], num_seen: int, folder: Path, wanted: str, command: str
) -> list[Kept]:
    """Of each machine one; those of two cores first."""
    found: dict[str, Kept] = {}
    for _, record in sorted(fit, key=lambda one: (one[0], one[1].begun)):
        found[record.machine.name] = record
    if not found:
        raise ConfigError(
            f"no record fits the picture. {folder}: expected {wanted}; "
            f"none of {num_seen} records has that. Make one: {command}"
        )
    return sorted(found.values(), key=lambda one: (one.machine.cores != 2, one.machine.name))


# --- panels -------------------------------------------------------------------------------------


def of_environments(record: Record) -> Panels:
    """Each workload, by backend."""
    rows = [row for row in summarise(record.outcomes) if row.rates]
    of = {kind: [row for row in rows if name_of(row.job.env) == kind] for kind in ALONE}
    where = f"{record.machine.cores} cores"
    return {
        f"{kind}, {where}": {
            label: _line(row for row in of[kind] if row.job.contestant == contestant)
            for contestant, label in SHOWN.items()
        }
        for kind in ALONE
    }


def of_training(records: Iterable[Training]) -> Panels:
    """Each machine, by environment."""
    panels = {}
    for record in records:
        rows = summarise(one.outcome for one in record.answers)
        ours = [row for row in rows if row.rates and row.job.contestant == OURS]
        panels[f"training, {record.machine.cores} cores"] = {
            name_of(env): _line(row for row in ours if row.job.env == env)
            for env in dict.fromkeys(row.job.env for row in ours)
        }
    return panels


def _line(rows: Iterable[Row]) -> list[tuple[int, float]]:
    """At each number of environments the best of those of workers."""
    return next(iter(plots.lines(rows).values()), [])


def draw(panels: Panels, file: Path) -> Path:
    """One picture, its panels side by side."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "shoal"  # the same picture from the same record
    from matplotlib import pyplot

    figure, all_axes = pyplot.subplots(
        1, len(panels), figsize=(4.6 * len(panels), 3.6), layout="constrained", squeeze=False
    )
    for axes, (title, lines) in zip(all_axes[0], panels.items(), strict=True):
        for label, line in lines.items():
            if line:
                style = ":" if label == "bound" else "-"
                axes.plot(*zip(*line, strict=True), style, marker="o", markersize=4, label=label)
        axes.set(xscale="log", xlabel="environments", ylabel="steps/s", title=title)
        axes.set_xticks(sorted({count for line in lines.values() for count, _ in line}))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
    return file


if __name__ == "__main__":
    sys.exit(main())
