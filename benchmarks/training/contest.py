"""Tasks, each in a process of its own, in turn: who drifts drifts with everyone else.

Processes get the environment as a user has it (no limit on threads: what a library does about
that is part of how fast it is), and what was probed of environments is not remembered.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.plan import ROOT
from benchmarks.training.task import Answer, Task
from shoal.measure import processes
from shoal.measure.contest import run_apart

LIMIT_S = 600.0
"""A measurement that takes longer than this is cut off."""
DISTURBED_CPU = 0.2
"""Cores that others may use meanwhile."""


def contest(
    groups: Sequence[Sequence[Task]], repeats: int, patience_s: float = 0.0
) -> Iterator[Answer]:
    """Every task so many times, those of a group in turn; with another seed each time.

    Rounds are numbered through all groups: those of different groups were at different times. Who
    was skipped once is not tried again. For `patience_s`, all in all, nothing is measured while
    other programs are at work, and what they have disturbed is measured again.
    """
    until = time.monotonic() + patience_s
    for number, group in enumerate(groups):
        out: set[Task] = set()
        for repeat in range(repeats):
            for task in (one for one in _rotated(group, repeat) if one not in out):
                answer = _undisturbed(_seeded(task, repeat), number * repeats + repeat, until)
                if answer.skipped:
                    out.add(task)
                yield answer


def _rotated(tasks: Sequence[Task], by: int) -> list[Task]:
    by %= len(tasks)
    return [*tasks[by:], *tasks[:by]]


def _seeded(task: Task, seed: int) -> Task:
    return Task(**{**json.loads(task.to_json()), "seed": seed})


def _undisturbed(task: Task, number: int, until: float) -> Answer:
    while True:
        while time.monotonic() < until and others_cpu() > DISTURBED_CPU:
            pass
        answer = run(task, number)
        if answer.numbers.get("others_cpu", 0.0) <= DISTURBED_CPU or time.monotonic() >= until:
            return answer


def others_cpu(wait_s: float = 1.0) -> float:
    """Cores that anybody keeps busy for a while; 0 where that cannot be known."""
    before_s = processes.busy_s()
    time.sleep(wait_s)
    after_s = processes.busy_s()
    return 0.0 if before_s is None or after_s is None else (after_s - before_s) / wait_s


def run(task: Task, number: int = 0, limit_s: float = LIMIT_S) -> Answer:
    """One task, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.training.child", task.to_json()]
    answer, ending = run_apart(command, _environment(), limit_s)
    if answer is None:
        return Answer(task, number, {}, skipped=ending)
    return Answer(task, number, **answer)


def _environment() -> dict[str, str]:
    path = [str(ROOT / "src"), str(ROOT), *sys.path]
    joined = os.pathsep.join(dict.fromkeys(folder for folder in path if folder))
    return {**os.environ, "PYTHONPATH": joined, "SHOAL_CACHE": "off"}
