"""`make bench`: Shoal and its rivals on the same workloads, interleaved, with a report.

The default takes some minutes; `--full` takes every workload, every number of environments and
everyone who is installed. Nothing here asserts a time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import plan, report
from benchmarks.workloads import WORKLOADS
from shoal.errors import suggest
from shoal.measure import Job, Outcome, Record, claim, contest
from shoal.measure.contest import LIMIT_S
from shoal.measure.table import count

QUICK_WORKLOADS = ("empty", "work-50us", "pixels-84", "cartpole")
QUICK_COUNTS = (8, 64)
START_COUNTS = (8, 64)
FEW = 3
START_LIMIT_S = 300.0
"""Some take minutes to start, and that is what is measured then."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    record = plan.begin(["python", "-m", "benchmarks.run", *given.asked], given.name)
    file = claim(given.out, record.stem, record.to_json())
    groups = [
        list(plan.jobs_at(WORKLOADS[name], num_envs, given.contestants, given.seconds))
        for name in given.workloads
        for num_envs in given.env_counts
    ]
    if not given.no_starts:
        starters = [*given.contestants, *(plan.STARTERS if given.full else ())]
        groups += [list(plan.start_jobs(starters, [num_envs])) for num_envs in START_COUNTS]
    measure(record, groups, given.repeats, keep=lambda: file.write_text(record.to_json()))
    print(f"\n{report.write(file)}")
    return 0


def measure(
    record: Record,
    groups: Iterable[Sequence[Job]],
    repeats: int,
    keep: Callable[[], object] = lambda: None,
) -> None:
    """Run a contest of each group and say how it goes; after each `keep` what there is so far."""
    groups = list(groups)
    begun, total = time.monotonic(), sum(map(len, groups))
    for number, group in enumerate(groups):
        done = sum(map(len, groups[:number])) / total
        print(f"[{done:4.0%}, {time.monotonic() - begun:.0f} s]", flush=True)
        limit_s = LIMIT_S if group[0].duration_s else START_LIMIT_S
        rounds = contest(
            group, repeats, together=lambda job: None, where=plan.where, limit_s=limit_s
        )
        for outcome in rounds:
            # Rounds of different groups were at different times: none is paired with another.
            outcome = replace(outcome, round=outcome.round + number * repeats)
            record.outcomes.append(outcome)
            print(f"  {line(outcome)}", flush=True)
        keep()


def line(outcome: Outcome) -> str:
    job, figures = outcome.job, outcome.figures
    what = f"{plan.name_of(job.env)} {job.num_envs} envs, {job.label}"
    if figures is None:
        return f"{what}: skipped, {outcome.skipped}"
    if figures.steps_per_s is None:
        return f"{what}: started in {figures.start_s:.2f} s"
    return f"{what}: {count(figures.steps_per_s)} steps/s"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    add = parser.add_argument
    add("--full", action="store_true", help="everything: hours")
    add("--workloads", nargs="+", metavar="NAME", help=f"of {', '.join(WORKLOADS)}")
    add("--env-counts", nargs="+", type=int, metavar="N", help="numbers of environments")
    add("--contestants", nargs="+", metavar="NAME", help=f"of {', '.join(plan.FIELD)}")
    add("--repeats", type=int, help="rounds (default 2, full 5)")
    add("--seconds", type=float, help="of each measurement (default 0.4, full 1)")
    add("--no-starts", action="store_true", help="leave start-up times out")
    add("--out", type=Path, default=plan.RESULTS, help="folder for JSON, report and plots")
    add("--name", type=plan.as_name, help="what its files' names begin with (default: as measured)")
    given = parser.parse_args(arguments)
    given.name = given.name or name_of_run(given.workloads or (), given.full)
    given.asked = without_folder(sys.argv[1:] if arguments is None else arguments)
    full = given.full
    given.workloads = given.workloads or list(WORKLOADS if full else QUICK_WORKLOADS)
    given.env_counts = given.env_counts or list(plan.ENV_COUNTS if full else QUICK_COUNTS)
    given.contestants = given.contestants or (plan.FIELD if full else plan.QUICK_FIELD)
    given.repeats = given.repeats or (5 if full else 2)
    given.seconds = given.seconds or (1.0 if full else 0.4)
    known = {
        "workload": (given.workloads, WORKLOADS),
        "contestant": (given.contestants, plan.FIELD),
    }
    for kind, (asked, there) in known.items():
        for name in asked:
            if name not in there:
                parser.error(f"there is no {kind} {name!r}. {suggest(name, there)}")
    return given


def name_of_run(workloads: Sequence[str], full: bool) -> str:
    """A few workloads are named themselves; more of them are the suite."""
    if 0 < len(workloads) <= FEW:
        return "-".join(workloads)
    return "bench-full" if full else "bench"


def without_folder(arguments: Sequence[str]) -> list[str]:
    """What a record says of how it was made: where it was put is nobody's business."""
    rest = list(arguments)
    while "--out" in rest:
        at = rest.index("--out")
        del rest[at : at + 2]
    return rest


if __name__ == "__main__":
    sys.exit(main())
