"""F8: make, step, close, again and again in one process, and nothing grows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faults.conftest import Record, Scale
from faults.program import Program

MOST_GROWTH_BYTES = 5_000_000

PROGRAM = """
import gc, json, os, sys
import numpy as np
import psutil
import shoal
from faults.program import wait_until
from shoal.testing import CountingWorld

START_METHOD, ANOTHER = {start_method!r}, {another!r}
WARM_UP, ROUNDS = {warm_up!r}, {rounds!r}


def make():
    return shoal.make(CountingWorld, 8, backend="process", num_workers=2, start_method=START_METHOD)


def once():
    with make() as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(8, dtype=np.int64))


def below():
    return psutil.Process().children(recursive=True)


def measure():
    gc.collect()
    return {{
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": len(below()),
        "descriptors of children": sum(child.num_fds() for child in below()),
        "resident bytes": psutil.Process().memory_info().rss,
    }}


kept = make() if ANOTHER else None
children = len(below())
for _ in range(WARM_UP):
    once()
wait_until(lambda: len(below()) == children, 2.0)  # a server ends a moment after it was closed
before = measure()
for _ in range(ROUNDS):
    once()
wait_until(lambda: len(below()) == children, 2.0)
print(json.dumps([before, measure()]))
"""


@pytest.mark.parametrize("another", [False, True], ids=["alone", "beside another"])
@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_making_and_closing_again_and_again_grows_nothing(
    start_method: str, another: bool, tmp_path: Path, scale: Scale, figure: Record
) -> None:
    quick = start_method == "fork" or (start_method == "forkserver" and another)
    rounds, warm_up = scale(short=25 if quick else 2, full=200), scale(short=2, full=10)
    source = PROGRAM.format(
        start_method=start_method, another=another, warm_up=warm_up, rounds=rounds
    )
    with Program(source, tmp_path) as program:
        before, after = json.loads(program.output(timeout_s=800.0))
    grown = {name: after[name] - before[name] for name in before}
    resident_bytes = grown.pop("resident bytes")
    assert set(grown.values()) == {0}, grown
    assert resident_bytes < MOST_GROWTH_BYTES
    where = f"{start_method}, {'beside another pool' if another else 'alone'}"
    figure("F8", where, f"{rounds} rounds, nothing grew, resident {resident_bytes / 1e6:+.1f} MB")
