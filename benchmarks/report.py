"""From a record to Markdown (and plots, where matplotlib is there): `python -m benchmarks.report`.

Pure functions of the record, so a report can be written again from the JSON of any machine.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.plan import name_of
from benchmarks.workloads import WORKLOADS
from shoal.measure import Machine, Outcome, Record, Row, summarise
from shoal.measure.job import Place
from shoal.measure.summary import at, disturbance
from shoal.measure.table import (
    FOOTPRINT_HEADERS,
    HEADERS,
    NONE,
    as_markdown,
    body,
    footprints,
    seconds,
    skips,
)

NOTES = """\
Steps are transitions: a call that only resets an environment is none. *To best rival* is the median
over rounds of the ratio to the fastest peer that runs the same Python environments, serial ones
included. *Of the bound* is the share of what as many processes do that step the same environments
and never communicate. *×n* is a number of workers that was chosen; without it a contestant decides
by itself. CPU seconds are those of the caller and all its workers."""


def markdown(record: Record, pictures: Sequence[str] = ()) -> str:
    """The whole report."""
    parts = [
        f"# Benchmark, {record.begun}",
        machine_lines(record.machine),
        disturbance(record.outcomes),
        f"Regenerate: `{record.asked}`",
        NOTES,
        *tables(record),
        *(f"![{Path(picture).stem}]({picture})" for picture in pictures),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def tables(record: Record) -> list[str]:
    """Every measurement; empty where there is nothing of a kind."""
    rows = summarise(record.outcomes)
    stepped = [row for row in rows if row.job.duration_s]
    return [
        *(_workload(name, stepped, record.outcomes) for name in _names(stepped)),
        _pauses(stepped),
        _starts(row for row in rows if not row.job.duration_s),
        _footprints(stepped),
    ]


def machine_lines(machine: Machine) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    commit = f"commit {machine.commit}; " if machine.commit else ""
    return (
        f"{machine.cpu}, {machine.cores} usable cores of {machine.cores_of_machine}, "
        f"{machine.memory_gb} GB; {machine.system}; {machine.python}; {packages}; {commit}"
        f"load {machine.load} at the start."
    )


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.job.env for row in rows))


def _workload(env: str, rows: Sequence[Row], outcomes: Sequence[Outcome]) -> str:
    known = [workload for workload in WORKLOADS.values() if workload.env == env]
    title = f"## {known[0].name}: {known[0].says}" if known else f"## {env}"
    counts = dict.fromkeys(row.job.num_envs for row in rows if row.job.env == env)
    places = [Place(env, num_envs) for num_envs in counts]
    return "\n\n".join([title, *(_place(place, at(rows, place), outcomes) for place in places)])


def _place(place: Place, rows: Sequence[Row], outcomes: Sequence[Outcome]) -> str:
    left_out = skips(rows)
    lines = [
        f"### {place.num_envs} environments",
        as_markdown(HEADERS, body(rows)),
        "Not measured: " + "; ".join(left_out) + "." if left_out else "",
        disturbance(one for one in outcomes if one.job.place == place),
    ]
    return "\n\n".join(filter(None, lines))


def _pauses(rows: Iterable[Row]) -> str:
    cells = [
        [
            row.job.label,
            str(row.job.num_envs),
            _percent(row.middle.pause_cpu),
            seconds(row.middle.wake_s),
        ]
        for row in rows
        if row.middle.wake_s is not None
    ]
    headers = ("contestant", "envs", "CPU of each worker while nobody steps", "first call after")
    return "## A learner that pauses\n\n" + as_markdown(headers, cells) if cells else ""


def _starts(rows: Iterable[Row]) -> str:
    """From a clean interpreter to the end of the first reset."""
    rows = list(rows)
    cells = [
        [
            row.job.label,
            str(row.job.num_envs),
            seconds(row.middle.start_s),
            seconds(row.middle.start_cpu_s),
        ]
        for row in sorted(rows, key=lambda row: (row.job.num_envs, row.middle.start_cpu_s or 0.0))
        if row.middle.start_s is not None
    ]
    if not cells:
        return ""
    title = "## Start: from a clean interpreter to the end of the first reset, CartPole-v1"
    left_out = skips(rows)
    lines = [title, as_markdown(("contestant", "envs", "wall", "CPU"), cells)]
    return "\n\n".join(
        [*lines, *(["Not measured: " + "; ".join(left_out) + "."] if left_out else [])]
    )


def _footprints(rows: Sequence[Row]) -> str:
    """Memory, processes and descriptors with each number of CartPoles; else of what was stepped."""
    chosen = [row for row in rows if name_of(row.job.env) == "cartpole"] or list(rows)
    by_place = {place: footprints(at(chosen, place)) for place in _places(chosen)}
    parts = [
        f"### {name_of(place.env)}, {place.num_envs} environments\n\n"
        + as_markdown(FOOTPRINT_HEADERS, cells)
        for place, cells in by_place.items()
        if cells
    ]
    return "\n\n".join(["## Start, memory and descriptors", *parts]) if parts else ""


def _places(rows: Iterable[Row]) -> list[Place]:
    """By number of environments within each of them, whatever was measured first."""
    places = list(dict.fromkeys(row.job.place for row in rows))
    envs = list(dict.fromkeys(place.env for place in places))
    return sorted(places, key=lambda place: (envs.index(place.env), place.num_envs))


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{share:.2%}"


def write(file: Path) -> Path:
    """Report and plots of the record in a file, next to it and named like it."""
    plots.draw(Record.from_json(file.read_text()), file.parent, file.stem)
    report = file.with_suffix(".md")
    report.write_text(of_file(file))
    return report


def of_file(file: Path) -> str:
    """The report of a record, with those of its pictures that are there."""
    record = Record.from_json(file.read_text())
    names = plots.names(record, file.stem).values()
    return markdown(record, [name for name in names if (file.parent / name).exists()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Records of other commands are left to those."""
    for file in map(Path, sys.argv[1:] if arguments is None else arguments):
        other = _whose(json.loads(file.read_text()))
        print(f"{file}: {other}" if other else write(file))
    return 0


def _whose(content: dict[str, Any]) -> str:
    """Who makes a report of this, if not this module."""
    if "answers" in content:
        return "left to `python -m benchmarks.train report`"
    if "outcomes" not in content:
        return "figures without a report"
    is_of_targets = "benchmarks.targets" in content["asked"]
    return "left to `python -m benchmarks.targets --from`" if is_of_targets else ""


if __name__ == "__main__":
    sys.exit(main())
