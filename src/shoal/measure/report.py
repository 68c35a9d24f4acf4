"""From a record to a report in Markdown, with plots where matplotlib is there.

Pure functions of the record, so a report can be written again from the JSON of any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from shoal.measure.contest import Outcome
from shoal.measure.fingerprint import Machine
from shoal.measure.job import Place
from shoal.measure.plot import draw_each
from shoal.measure.record import Record
from shoal.measure.summary import Row, at, disturbance, summarise
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


class Names(NamedTuple):
    """What environments are called in a report; by default as their jobs have them."""

    short: Callable[[str], str] = str
    """In the names of files."""
    title: Callable[[str], str] = str
    weighed: str = ""
    """The short name of the one whose memory is told; of all where it is not there."""


PLAIN = Names()
Draw = Callable[[Record, Path, str], Sequence[str]]
"""Draws a record into a folder, files beginning so, and says what they are called."""


def markdown(record: Record, plots: Sequence[str] = (), names: Names = PLAIN) -> str:
    """The whole report."""
    parts = [
        f"# Benchmark, {record.begun}",
        machine_lines(record.machine),
        disturbance(record.outcomes),
        f"Regenerate: `{record.asked}`",
        NOTES,
        *tables(record, names),
        *(f"![{Path(plot).stem}]({plot})" for plot in plots),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def tables(record: Record, names: Names = PLAIN) -> list[str]:
    """Every measurement; empty where there is nothing of a kind."""
    rows = summarise(record.outcomes)
    stepped = [row for row in rows if row.job.duration_s]
    return [
        *(_workload(env, stepped, record.outcomes, names) for env in _envs(stepped)),
        _pauses(stepped),
        _starts(row for row in rows if not row.job.duration_s),
        _footprints(stepped, names),
    ]


def machine_lines(machine: Machine) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    commit = f"commit {machine.commit}; " if machine.commit else ""
    blas = f"BLAS {machine.blas}; " if machine.blas else ""
    return (
        f"{machine.cpu}, {machine.cores} usable cores of {machine.cores_of_machine}, "
        f"{machine.memory_gb} GB; {machine.system}; {machine.python}; {packages}; {blas}{commit}"
        f"load {machine.load} at the start."
    )


def _envs(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.job.env for row in rows))


def _workload(env: str, rows: Sequence[Row], outcomes: Sequence[Outcome], names: Names) -> str:
    title = f"## {names.title(env)}"
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


def _footprints(rows: Sequence[Row], names: Names) -> str:
    """Memory, processes and descriptors with each number of those that are weighed."""
    weighed = [row for row in rows if names.short(row.job.env) == names.weighed] or list(rows)
    by_place = {place: footprints(at(weighed, place)) for place in _places(weighed)}
    parts = [
        f"### {names.short(place.env)}, {place.num_envs} environments\n\n"
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


def write(file: Path, names: Names = PLAIN, draw: Draw = draw_each) -> Path:
    """Report and plots of the record in a file, next to it and named like it."""
    record = Record.from_json(file.read_text())  # which has rounded
    report = file.with_suffix(".md")
    report.write_text(markdown(record, draw(record, file.parent, file.stem), names))
    return report
