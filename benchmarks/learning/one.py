"""One row in a process of its own: `python -m benchmarks.learning.one TASK LIBRARY SEED`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.learning import rows
from benchmarks.learning.tasks import LIBRARIES, TASKS, Job
from benchmarks.learning.trial import commit

_MODULES = {
    "shoal": "benchmarks.learning.ours",
    "sb3": "benchmarks.learning.sb3",
    "sb3_alike": "benchmarks.learning.sb3",
    "random": "benchmarks.learning.chance",
    "scripted": "benchmarks.learning.scripted",
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    if not given.allow_dirty:
        rows.check_clean(commit())  # before the hours that it takes
    if given.parent is not None:
        threading.Thread(target=_end_with, args=[given.parent], daemon=True).start()
    import torch

    torch.set_num_threads(1)
    task = TASKS[given.task]
    job = Job(replace(task, steps=given.steps or task.steps), given.library, given.seed)
    rows.write(given.rows, job, train_of(given.library)(job), given.allow_dirty)
    return 0


def train_of(library: str) -> Callable[[Job], rows.Row]:
    return importlib.import_module(_MODULES[library]).train  # type: ignore[no-any-return]


def _end_with(parent: int) -> None:
    """A row that nobody waits for is not finished."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.one", description=__doc__)
    add = parser.add_argument
    add("task", choices=TASKS)
    add("library", choices=LIBRARIES)
    add("seed", type=int)
    add("--rows", type=Path, default=rows.FOLDER, help="folder that it is written to")
    add("--steps", type=int, help="other than the task's")
    add("--allow-dirty", action="store_true", help="of a tree with changes, too")
    add("--parent", type=int, help="process without which this one ends")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
