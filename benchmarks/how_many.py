"""How many workers, how long a rollout, how big a batch: `python -m benchmarks.how_many`.

    workers     steps/s of 32 environments against workers: cheap, heavy and waiting, with the bound
    rollouts    steps/s of whole training against rollout and batch, and where the time goes

It leaves a record of each (JSON, in benchmarks/results/how-many) and draws the pictures of
`docs/how-many-envs.md`. What is broken off goes on where it was, on the same day; `--draw` draws
the newest records again. Some minutes; nothing is asserted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.many_envs import IMAGES
from benchmarks.plan import RESULTS, name_of
from benchmarks.run import line, without_folder
from benchmarks.train import line as line_of_training
from benchmarks.training import contest as training
from benchmarks.training.group import SHARES
from benchmarks.training.plan import OURS, SPEEDUP
from benchmarks.training.task import Answer, Task, middle
from benchmarks.training.task import Record as Training
from benchmarks.workloads import WORKLOADS
from shoal.measure import BOUND, Job, Outcome, Record, run_job, summarise

OUT = RESULTS / "how-many"
NUM_ENVS = 32
WORKERS = {"cartpole": (1, 2, 3, 4, 8), "work-500us": (1, 2, 3, 4, 8)}
WORKERS |= {"waiting": (1, 2, 4, 8, 16, 32)}
"""Numbers of workers by workload: a cheap one, a heavy one, and one that waits."""
SHOWN = {BOUND: "bound", "shoal serial": "serial", "shoal process": "process"}
SHOWN |= {"shoal hybrid": "hybrid", "shoal thread": "thread"}
TRAINING_ENVS = 8
ROLLOUTS = (256, 1024, 2048, 4096, 8192)
BATCHES = (32, 64, 256, 1024, 2048)
KINDS = ("cheap", "heavy")
AXES = {
    "rollout": "rollout: steps between two updates",
    "batch_size": "batch: steps of one gradient",
}
HELD = {"rollout": ("batch_size", 64), "batch_size": ("rollout", 2048)}
"""What stays as it is along an axis."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    asked = ["python", "-m", "benchmarks.how_many"]
    asked += without_folder(sys.argv[1:] if arguments is None else arguments)
    if not given.draw:
        given.out.mkdir(parents=True, exist_ok=True)
        measure_workers(Record.begin(asked), given)
        measure_training(Training.begin("how-many", asked), given)
    for file in pictures(given.out, given.images):
        print(file)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.how_many",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--draw", action="store_true", help="measure nothing, draw what there is")
    add("--seconds", type=float, default=0.6, help="of each measurement of workers (default 0.6)")
    add("--steps", type=int, default=10_000, help="at least, of each training (default 10,000)")
    add("--repeats", type=int, default=2, help="rounds (default 2)")
    add("--out", type=Path, default=OUT, help="folder for the records")
    add("--images", type=Path, default=IMAGES, help="folder for the pictures")
    return parser.parse_args(arguments)


# --- what is measured -------------------------------------------------------------------------


def worker_jobs(seconds: float) -> list[Job]:
    """Those of a workload stand together, and are measured in turn."""
    jobs = []
    for name, counts in WORKERS.items():
        env, waits = WORKLOADS[name].env, WORKLOADS[name].waits
        jobs.append(Job("shoal serial", env, NUM_ENVS, 1, seconds))
        for workers in counts:
            others = ("shoal process", "shoal thread" if waits else "shoal hybrid")
            for contestant in (BOUND, *others):
                jobs.append(Job(contestant, env, NUM_ENVS, workers, seconds))
    return jobs


def training_tasks(steps: int) -> list[Task]:
    """Rollouts with one batch size, batches with one rollout; two updates at least."""
    shapes = [(rollout, 64) for rollout in ROLLOUTS] + [(2048, batch) for batch in BATCHES]
    tasks = []
    for kind in KINDS:
        for rollout, batch in dict.fromkeys(shapes):
            n_steps, epochs = rollout // TRAINING_ENVS, SPEEDUP[kind].n_epochs
            shape = (TRAINING_ENVS, n_steps, batch, epochs, max(steps, 2 * rollout))
            tasks.append(Task(OURS, SPEEDUP[kind].env, *shape))
    return tasks


def measure_workers(record: Record, given: argparse.Namespace) -> None:
    file = given.out / f"workers-{record.stem}.json"
    jobs = worker_jobs(given.seconds)
    if file.exists():
        before = Record.from_json(file.read_text()).outcomes
        record.outcomes = [one for one in before if one.job in jobs]
    done = {(one.job, one.round) for one in record.outcomes}
    for job, number in left(jobs, given.repeats, done):
        record.outcomes.append(run_job(job, number))
        print(line(record.outcomes[-1]), flush=True)
        file.write_text(record.to_json())


def measure_training(record: Training, given: argparse.Namespace) -> None:
    file = given.out / f"{record.stem}.json"
    tasks = training_tasks(given.steps)
    if file.exists():
        before = Training.from_json(file.read_text()).answers
        record.answers = [one for one in before if replace(one.task, seed=0) in tasks]
    done = {(replace(one.task, seed=0), one.round) for one in record.answers}
    for task, number in left(tasks, given.repeats, done):
        record.answers.append(training.run(replace(task, seed=number), number))
        print(_named(record.answers[-1]), flush=True)
        file.write_text(record.to_json())


def _named(answer: Answer) -> str:
    task = answer.task
    return f"{line_of_training(answer)} (rollout {task.rollout}, batch {task.batch_size})"


T = TypeVar("T")


def left(jobs: Sequence[T], repeats: int, done: Iterable[tuple[T, int]]) -> Iterator[tuple[T, int]]:
    """What has not been measured yet, one round after the other."""
    known = set(done)
    for number in range(repeats):
        yield from ((job, number) for job in jobs if (job, number) not in known)


# --- pictures ---------------------------------------------------------------------------------


Line = Sequence[tuple[int, float]]


def pictures(records: Path, images: Path) -> Iterator[Path]:
    """Of the newest record of each kind."""
    for pattern, draw, name in (
        ("workers-*.json", draw_workers, "how-many-workers.svg"),
        ("train-how-many-*.json", partial(draw_training, "rollout"), "how-many-rollouts.svg"),
        ("train-how-many-*.json", partial(draw_training, "batch_size"), "how-many-batches.svg"),
    ):
        found = sorted(records.glob(pattern), key=lambda file: file.stem[-10:])
        if found:
            images.mkdir(parents=True, exist_ok=True)
            yield draw(found[-1].read_text(), images / name)


def worker_lines(outcomes: Iterable[Outcome]) -> Mapping[str, Mapping[str, Line]]:
    """By workload and contestant: numbers of workers, and steps per second."""
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for row in summarise(outcomes):
        if row.rates:
            lines = panels.setdefault(name_of(row.job.env), {})
            label = SHOWN[row.job.contestant]
            lines.setdefault(label, []).append((row.job.num_workers or 1, row.steps_per_s))
    return {
        name: {label: sorted(line) for label, line in lines.items()}
        for name, lines in panels.items()
    }


def training_lines(answers: Iterable[Answer], axis: str) -> Mapping[str, Mapping[str, Line]]:
    """By environment: steps per second and shares of time against rollouts or batches."""
    by_place: dict[tuple[str, int], list[Answer]] = {}
    held, value = HELD[axis]
    for answer in answers:
        if not answer.skipped and getattr(answer.task, held) == value:
            place = (name_of(answer.task.env), getattr(answer.task, axis))
            by_place.setdefault(place, []).append(answer)
    lines: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for (env, size), there in sorted(by_place.items()):
        for name, number in middle(there).items():
            lines.setdefault(env, {}).setdefault(name, []).append((size, number))
    return lines


def draw_workers(text: str, file: Path) -> Path:
    record = Record.from_json(text)
    panels = worker_lines(record.outcomes)
    figure, all_axes = _panels(1, len(panels), record.machine.cores)
    for axes, (name, lines) in zip(all_axes[0], panels.items(), strict=True):
        for label in filter(lines.__contains__, SHOWN.values()):
            axes.plot(*zip(*lines[label], strict=True), label=label, **_STYLES[label])
        counts = sorted({count for line in lines.values() for count, _ in line})
        _dress(axes, counts, "workers", f"{name}, {NUM_ENVS} environments")
        axes.set_ylabel("steps/s")
        axes.legend(fontsize="small")
    return _saved(figure, file)


def draw_training(axis: str, text: str, file: Path) -> Path:
    """Above the speed, below what a second of it goes to."""
    record = Training.from_json(text)
    found = training_lines(record.answers, axis)
    figure, all_axes = _panels(2, len(found), record.machine.cores)
    for (env, lines), above, below in zip(found.items(), *all_axes, strict=True):
        sizes, rates = zip(*lines["steps_per_s"], strict=True)
        above.plot(sizes, rates, marker="o", color="tab:blue")
        _dress(above, sizes, "", f"{env}, {TRAINING_ENVS} environments")
        above.set_ylabel("steps/s, whole training")
        shares = [[value for _, value in lines[name]] for name in SHARES]
        below.stackplot(sizes, *shares, labels=SHARES, alpha=0.8)
        _dress(below, sizes, AXES[axis], "")
        below.set(ylim=(0, 1), ylabel="share of time")
        below.yaxis.set_major_formatter("{x:.0%}")
        below.legend(fontsize="small", loc="lower right")
    return _saved(figure, file)


_STYLES: Mapping[str, Mapping[str, Any]] = {
    "bound": {"color": "black", "linestyle": "-.", "linewidth": 1.2},
    "serial": {"color": "tab:gray", "marker": "s", "linestyle": ""},
    "process": {"color": "tab:blue", "marker": "o"},
    "hybrid": {"color": "tab:orange", "marker": "D"},
    "thread": {"color": "tab:green", "marker": "^"},
}


def _panels(rows: int, columns: int, cores: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "shoal"  # the same picture from the same record
    from matplotlib import pyplot

    size = (4.2 * columns, 3.3 * rows)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    figure.suptitle(f"{cores} cores", fontsize="medium")
    return figure, axes


def _dress(axes: Any, ticks: Sequence[int], label: str, title: str) -> None:
    axes.set(xscale="log", xlabel=label, title=title)
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def _saved(figure: Any, file: Path) -> Path:
    from matplotlib import pyplot

    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    pyplot.close(figure)
    return file


if __name__ == "__main__":
    sys.exit(main())
