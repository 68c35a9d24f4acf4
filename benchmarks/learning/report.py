"""From rows to `docs/results.md` and its pictures: `python -m benchmarks.learning.report`."""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learning import intervals, plots, rows
from benchmarks.learning.intervals import Interval
from benchmarks.learning.rows import Row
from benchmarks.learning.tasks import LIBRARIES, TASKS, Job, Task, jobs
from benchmarks.plan import ROOT
from shoal.measure.table import NONE, as_markdown

DOCS = ROOT / "docs"
FEWEST = 3
"""Seeds that a comparison takes."""

HEAD = """\
# Results

What PPO learns in Shoal and in Stable-Baselines3, side by side; what several agents learn, beside
random players; and a game of our own, beside a random player and one that knows it by heart. This
page is made by

```sh
make results                                  # hours; broken off, it goes on where it was
make results ARGS="--tasks cartpole --seeds 3"
```

from the rows in `benchmarks/results/learning`, one training each. A row is made again only where
the settings of its task have changed, or with `--again`; what else has changed since is told by the
commits that stand below each task. A tree with changes makes no rows, unless with `--allow-dirty`.
A row follows from its seed bit for bit on one machine with one set of versions. Another processor
multiplies matrices by other kernels, which differ in the last bits of a number; from there on the
training is another one.

- **The same for both**: environments, number of steps, seeds, one thread, environments stepped one
  after the other in one process. A training ends with the first update that reaches the number of
  steps.
- **Settings**: Stable-Baselines3 has the tuned ones of RL Baselines3 Zoo
  (`benchmarks/learning/tasks.py`), Shoal those in `configs/`, tried out on seeds that are not among
  the rows. On MuJoCo that library is trained with the same settings as Shoal, too.
- **Score** of a seed: the mean return of 100 episodes of the *final* policy, in an environment of
  its own, with seeds that training never draws on and the most probable actions. No checkpoint is
  picked.
- **Several agents**: the score is the return of all of them together. Of connect four it is the
  share of games that were won against a random player, from both seats in turn; draws are not won.
  It was trained against itself and, in three of four environments, against random players
  (`random_opponents: 0.75`).
- **Simple push**: the score is the return of one agent, of each in turn, beside a random other one.
- **Tidekeep**: the score is the share of games in which the pearl was taken.
- **IQM**: the interquartile mean over seeds (of ten the middle six; of three the plain mean). In
  parentheses is its 95 % interval, by stratified bootstrap
  ([rliable](https://github.com/google-research/rliable)). Three seeds make a rough interval.
- **Seconds** are medians over seeds, where all rows of a task were made on machines of one kind;
  where they were not, there are none, because they would compare machines.
- **Curves**: the mean return of the latest 100 training episodes, which are played with chance; IQM
  and 95 % interval over seeds.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One task: the rows of each library, and what they come to."""

    task: Task
    rows: Mapping[str, Sequence[Row]]
    estimates: Mapping[str, Interval]
    """Only of libraries with rows."""

    @property
    def verdict(self) -> str:
        """Where our interval lies; of too few seeds there is none to speak of."""
        compared = self.task.libraries[:2]
        if any(len(self.rows[library]) < FEWEST for library in compared):
            return NONE
        ours, theirs = (self.estimates[library] for library in compared)
        if ours.high < theirs.low:
            return "below"
        return "above" if ours.low > theirs.high else "level"


Estimate = Callable[[Sequence[float]], Interval]


def compare(folder: Path, estimate: Estimate = intervals.interval) -> list[Comparison]:
    """All tasks, with the rows that there are."""
    return [_compared(task, folder, estimate) for task in TASKS.values()]


def _compared(task: Task, folder: Path, estimate: Estimate) -> Comparison:
    found: dict[str, list[Row]] = {library: [] for library in task.libraries}
    for job in jobs([task], task.libraries):
        row = rows.read(folder, job)
        if row is not None:
            found[job.library].append(row)
    scores = {library: [row.score for row in of] for library, of in found.items() if of}
    return Comparison(task, found, {library: estimate(of) for library, of in scores.items()})


# --- text ---------------------------------------------------------------------------------------


def markdown(comparisons: Sequence[Comparison], pictures: Mapping[str, str]) -> str:
    """The whole page; `pictures` are by task."""
    parts = [HEAD.strip(), _summary(comparisons)]
    parts += [_section(one, pictures.get(one.task.name)) for one in comparisons if one.estimates]
    return "\n\n".join([*parts, _origin(comparisons)]) + "\n"


def _summary(comparisons: Sequence[Comparison]) -> str:
    parts = ["## All tasks"]
    for libraries in dict.fromkeys(one.task.libraries for one in comparisons):
        of = [one for one in comparisons if one.task.libraries == libraries]
        cells = [
            [
                one.task.title,
                f"{one.task.steps:,}",
                *(_shown(one.estimates.get(library)) for library in one.task.libraries),
                one.verdict,
            ]
            for one in of
        ]
        names = [LIBRARIES[library] for library in libraries]
        headers = ("task", "steps", *names, "our interval")
        parts += [as_markdown(headers, cells), _in_words(of)]
    return "\n\n".join(parts)


def _in_words(comparisons: Sequence[Comparison]) -> str:
    compared = [one for one in comparisons if one.verdict != NONE]
    if not compared:
        return f"No task has {FEWEST} rows of both libraries yet."
    below = [one.task.title for one in compared if one.verdict == "below"]
    where = ", ".join(below) if below else "none"
    return (
        "*Level*: the intervals overlap. *Above* and *below*: ours lies wholly there. Of the "
        f"{len(compared)} with {FEWEST} rows of both or more, it is wholly below on: {where}."
    )


def _section(one: Comparison, picture: str | None) -> str:
    task = one.task
    has_rows = [library for library in task.libraries if one.rows[library]]
    is_timed = len({row.machine for name in has_rows for row in one.rows[name]}) == 1
    cells = [
        [LIBRARIES[name], *_figures(task, one.rows[name], one.estimates[name], is_timed)]
        for name in has_rows
    ]
    asked = "" if task.threshold is None else f" Asked: at least {task.threshold:g} on every seed."
    times = ("wall s", "CPU s") if is_timed else ()
    headers = ("", "seeds", "IQM", "worst to best seed", "asked for is met", *times)
    parts = [
        f"## {task.title}",
        f"{task.steps:,} steps; Shoal with `{task.config}`.{asked}",
        as_markdown(headers, cells),
    ]
    if picture is not None:
        parts.append(f"![Learning curves of both on {task.title}]({picture})")
    parts.append(_made_by([row for library in has_rows for row in one.rows[library]]))
    return "\n\n".join(parts)


def _made_by(found: Sequence[Row]) -> str:
    """Of which commits and machines the rows of a task are."""
    commits = _counted(f"`{row.commit}`" for row in found)
    machines = list(dict.fromkeys(row.machine for row in found))
    if len(machines) == 1:
        return f"Made by commits (rows) {commits}, on one kind of machine: {machines[0]}."
    each = _counted(row.machine for row in found)
    return f"Made by commits (rows) {commits}, on machines of {len(machines)} kinds: {each}."


def _figures(task: Task, of: Sequence[Row], estimate: Interval, is_timed: bool) -> list[str]:
    scores = [row.score for row in of]
    met = NONE
    if task.threshold is not None:
        met = f"{sum(score >= task.threshold for score in scores)} of {len(scores)}"
    return [
        str(len(of)),
        _shown(estimate),
        " to ".join(_numbers(min(scores), max(scores))),
        met,
        *(_seconds(of) if is_timed else ()),
    ]


def _seconds(of: Sequence[Row]) -> tuple[str, str]:
    wall_s, cpu_s = (statistics.median(each) for each in zip(*map(_times, of), strict=True))
    return f"{wall_s:.0f}", f"{cpu_s:.0f}"


def _times(row: Row) -> tuple[float, float]:
    return row.wall_s, row.cpu_s


def _shown(estimate: Interval | None) -> str:
    if estimate is None:
        return NONE
    mean, low, high = _numbers(estimate.iqm, estimate.low, estimate.high)
    return f"{mean} ({low} to {high})"


def _numbers(*each: float) -> list[str]:
    """Small ones with one more digit."""
    digits = 2 if max(map(abs, each)) <= 2.0 else 1
    return [f"{one:.{digits}f}" for one in each]


def _origin(comparisons: Sequence[Comparison]) -> str:
    """Which rows there are, and where they come from."""
    found = [row for one in comparisons for of in one.rows.values() for row in of]
    planned = list(jobs([one.task for one in comparisons], list(LIBRARIES)))
    there = {(row.task, row.library, row.seed) for row in found}
    missing = [job for job in planned if (job.task.name, job.library, job.seed) not in there]
    parts = ["## Rows", f"{len(found)} of {len(planned)} rows are there.{_missing(missing)}"]
    if found:
        parts.append(
            "Seconds are medians of one training, on a machine that may have had other work.\n\n"
            f"- Commits (rows): {_counted(f'`{row.commit}`' for row in found)}\n"
            f"{_unclean(found)}"
            f"- Machines (rows): {_counted(row.machine for row in found)}\n"
            f"- Versions: {_versions(found)}"
        )
    return "\n\n".join(parts)


def _unclean(found: Iterable[Row]) -> str:
    counts = Counter(f"{row.task} {LIBRARIES[row.library]}" for row in found if not _is_clean(row))
    if not counts:
        return ""
    named = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"- Made on an unclean tree (`-dirty`: a commit with changes on top): {named}\n"


def _is_clean(row: Row) -> bool:
    return rows.is_clean(row.commit)


def _missing(missing: Iterable[Job]) -> str:
    counts = Counter(f"{job.task.name} {LIBRARIES[job.library]}" for job in missing)
    if not counts:
        return ""
    return " Missing: " + ", ".join(f"{name} {count}" for name, count in counts.items()) + "."


def _counted(each: Iterable[str]) -> str:
    return ", ".join(f"{one} ({count})" for one, count in Counter(each).most_common())


def _versions(found: Iterable[Row]) -> str:
    seen: dict[str, set[str]] = {}
    for row in found:
        for package, version in row.versions.items():
            seen.setdefault(package, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(of))}" for name, of in seen.items())


# --- files --------------------------------------------------------------------------------------


def write(folder: Path = rows.FOLDER, docs: Path = DOCS) -> Path:
    """The page and its pictures, from the rows that there are."""
    comparisons = compare(folder)
    pictures = {}
    for one in comparisons:
        if one.estimates and not one.task.counts_wins:  # curves are of returns, scores are not
            pictures[one.task.name] = f"images/results-{one.task.name}.svg"
            plots.draw(one.task, one.rows, docs / pictures[one.task.name])
    page = docs / "results.md"
    page.write_text(markdown(comparisons, pictures))
    return page


if __name__ == "__main__":
    print(write())
    sys.exit()
