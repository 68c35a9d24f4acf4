"""Reports of the benchmark suite, by the names of its workloads: `python -m benchmarks.report`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import plots
from benchmarks.plan import name_of
from benchmarks.workloads import WORKLOADS
from shoal.measure import Record, report
from shoal.measure.report import NOTES, Names, keep, machine_lines

__all__ = ["NOTES", "keep", "machine_lines", "main", "markdown", "tables", "write"]

OTHERS = {
    "targets-": "left to `python -m benchmarks.targets --from`",
    "train-": "left to `python -m benchmarks.train report`",
}


def markdown(record: Record, drawn: Sequence[str] = ()) -> str:
    """The whole report."""
    return report.markdown(record, drawn, NAMES)


def tables(record: Record) -> list[str]:
    """Every measurement; empty where there is nothing of a kind."""
    return report.tables(record, NAMES)


def write(record: Record, folder: Path, stem: str | None = None) -> Path:
    """JSON, report and plots, next to each other."""
    return report.write(record, folder, stem, NAMES, plots.draw)


def title_of(env: str) -> str:
    """The workload and what it is."""
    known = [workload for workload in WORKLOADS.values() if workload.env == env]
    return f"{known[0].name}: {known[0].says}" if known else env


NAMES = Names(name_of, title_of, weighed="cartpole")


def main(arguments: Sequence[str] | None = None) -> int:
    """Each record keeps its name; those of other commands have reports of their own."""
    for given in map(Path, sys.argv[1:] if arguments is None else arguments):
        if given.name.startswith(tuple(OTHERS)):
            print(f"{given}: {OTHERS[given.name.partition('-')[0] + '-']}")
        else:
            print(write(Record.from_json(given.read_text()), given.parent, given.stem))
    return 0


if __name__ == "__main__":
    sys.exit(main())
