"""The pictures of `docs/how-many-envs.md`, from records: `python -m benchmarks.many_envs`.

Steps per second against environments: of environments alone (`make bench`), and of whole training
(`python -m benchmarks.train speedup`), each from the newest record of its kind and machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.plan import RESULTS, ROOT, name_of
from benchmarks.training.plan import OURS
from benchmarks.training.task import Record as Training
from shoal.measure import BOUND, Record, Row, summarise

IMAGES = ROOT / "docs" / "images"
Lines = Mapping[str, Sequence[tuple[int, float]]]
"""By name: numbers of environments, and steps per second."""
Panels = Mapping[str, Lines]

ALONE = ("cartpole", "work-50us")
SHOWN = {BOUND: "bound", "shoal serial": "serial", "shoal process": "process"}
SHOWN |= {"shoal hybrid": "hybrid"}


def main() -> int:
    of_something_else = ("targets", "train", "teams", "waiting", "frames")
    alone = newest(RESULTS, "*cores-[0-9]*.json", of_something_else)
    for name, panels in (
        ("many-envs-steps", of_environments(Record.from_json(alone[0].read_text()))),
        ("many-envs-training", of_training(newest(RESULTS, "train-speedup-*.json"))),
    ):
        print(draw(panels, IMAGES / f"{name}.svg"))
    return 0


def newest(folder: Path, pattern: str, others: Sequence[str] = ()) -> list[Path]:
    """Of each machine the newest record of a kind; those of two cores first."""
    found: dict[str, Path] = {}
    for path in sorted(folder.glob(pattern), key=lambda path: path.stem[-10:]):
        if not path.name.startswith(tuple(others)):
            found[path.stem[:-11]] = path
    return sorted(found.values(), key=lambda path: ("-2cores-" not in path.name, path.name))


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


def of_training(files: Iterable[Path]) -> Panels:
    """Each machine, by environment."""
    panels = {}
    for file in files:
        record = Training.from_json(file.read_text())
        rows = summarise(one.outcome for one in record.answers)
        ours = [row for row in rows if row.rates and row.job.contestant == OURS]
        panels[f"training, {record.machine.cores} cores"] = {
            name_of(env): _line(row for row in ours if row.job.env == env)
            for env in dict.fromkeys(row.job.env for row in ours)
        }
    return panels


def _line(rows: Iterable[Row]) -> list[tuple[int, float]]:
    return sorted((row.job.num_envs, row.steps_per_s) for row in rows)


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
