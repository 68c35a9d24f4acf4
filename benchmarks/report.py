"""Reports of the suite: workloads by their names, and a command that writes reports again."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.plan import name_of
from benchmarks.workloads import WORKLOADS
from shoal.measure import Record, report
from shoal.measure.report import NOTES, Names, machine_lines

__all__ = ["NOTES", "machine_lines", "main", "markdown", "of_file", "tables", "write"]


def markdown(record: Record, pictures: Sequence[str] = ()) -> str:
    """The whole report."""
    return report.markdown(record, pictures, NAMES)


def tables(record: Record) -> list[str]:
    """Every measurement; empty where there is nothing of a kind."""
    return report.tables(record, NAMES)


def write(file: Path) -> Path:
    """Report and plots of the record in a file, next to it and named like it."""
    return report.write(file, NAMES, plots.draw)


def of_file(file: Path) -> str:
    """The report of a record, with those of its pictures that are there."""
    record = Record.from_json(file.read_text())
    names = plots.names(record, file.stem).values()
    return markdown(record, [name for name in names if (file.parent / name).exists()])


def title_of(env: str) -> str:
    """The workload and what it is."""
    known = [workload for workload in WORKLOADS.values() if workload.env == env]
    return f"{known[0].name}: {known[0].says}" if known else env


NAMES = Names(name_of, title_of, weighed="cartpole")


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
