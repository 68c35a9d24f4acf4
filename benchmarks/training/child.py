"""The process that measures one task: `python -m benchmarks.training.child TASK RESULT BEGUN`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.training.plan import FLOORS, GRADIENTS, SB3, SHOAL, WITHOUT
from benchmarks.training.task import Numbers, Task

Measure = Callable[[Task, float], tuple[Numbers, str]]


def main(arguments: list[str]) -> None:
    task, result = Task.from_json(arguments[0]), Path(arguments[1])
    try:
        numbers, note = contestant(task.contestant)(task, float(arguments[2]))
        answer: dict[str, Any] = {"numbers": _rounded(numbers), "note": note}
    except Exception as problem:
        said = next(iter(str(problem).splitlines()), "")
        answer = {"numbers": {}, "skipped": f"{type(problem).__name__}: {said}"}
    part = result.with_suffix(".part")
    part.write_text(json.dumps(answer))
    part.replace(result)


def contestant(name: str) -> Measure:
    """What measures it; its package is imported here, and that of no other."""
    if name in SB3:
        return partial(import_module("benchmarks.training.sb3").measure, **SB3[name])
    if name in FLOORS:
        return partial(import_module("benchmarks.training.floor").measure, precision=FLOORS[name])
    if name in GRADIENTS:
        return partial(import_module("benchmarks.training.ablate").gradient, way=GRADIENTS[name])
    if name in WITHOUT:
        return partial(import_module("benchmarks.training.ablate").without, part=WITHOUT[name])
    return partial(import_module("benchmarks.training.ours").measure, **SHOAL[name])


def _rounded(numbers: Numbers) -> Numbers:
    """Six digits: more are noise."""
    return {name: float(f"{value:.6g}") for name, value in numbers.items()}


if __name__ == "__main__":
    main(sys.argv[1:])
