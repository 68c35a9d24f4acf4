"""F11: a caller full of threads and numeric libraries can start workers at any time."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import Record, Scale
from faults.program import Program
from shoal.engine.backends.process.header import ANSWER
from shoal.engine.backends.process.outside import ProcessWorker
from shoal.testing import CountingWorld

# No main guard, a lambda of the script as factory, and everything that makes a fork dangerous:
# threads in numeric libraries, in the allocator, and in the locks of logging.
PROGRAM = """
import json, logging, threading, time
import numpy as np
import shoal
from shoal.testing import CountingWorld

try:
    import torch
except ImportError:
    torch = None

STARTS, START_METHOD = {starts!r}, {start_method!r}
ended = threading.Event()
rounds = dict.fromkeys(["blas", "logging", "allocating", "torch"], 0)


def blas():
    matrix = np.ones((200, 200))
    return float((matrix @ matrix).sum())


def logs():
    logging.getLogger("busy").warning("still here")


def allocates():
    return [bytes(size) for size in range(0, 300_000, 1000)]


def trains():
    layer = torch.nn.Linear(64, 64)
    layer(torch.ones(256, 64)).sum().backward()


def keep_on(name, work):
    while not ended.is_set():
        work()
        rounds[name] += 1


logging.getLogger("busy").addHandler(logging.NullHandler())
logging.getLogger("busy").propagate = False
works = {{"blas": blas, "logging": logs, "allocating": allocates}}
if torch is not None:
    trains()
    works["torch"] = trains
threads = [threading.Thread(target=keep_on, args=item) for item in works.items()]
for thread in threads:
    thread.start()
num_envs, started, took_s = 4, 0, []
for _ in range(STARTS):
    begun = time.monotonic()
    with shoal.make(
        lambda: CountingWorld(tag=num_envs),
        num_envs,
        backend="process",
        num_workers=2,
        start_method=START_METHOD,
    ) as envs:
        took_s.append(time.monotonic() - begun)
        envs.reset(seed=0)
        envs.step(np.zeros(num_envs, dtype=np.int64))
        started += envs.call("tag") == (num_envs,) * num_envs
ended.set()
for thread in threads:
    thread.join()
print(json.dumps([started, max(took_s), torch and torch.__version__, [rounds[w] for w in works]]))
"""


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_workers_start_from_a_caller_full_of_threads(
    start_method: str, tmp_path: Path, scale: Scale, figure: Record
) -> None:
    starts = scale(short=3, full=30)
    source = PROGRAM.format(starts=starts, start_method=start_method)
    with Program(source, tmp_path) as program:
        started, slowest_s, torch, rounds = json.loads(program.output(timeout_s=600.0))
    assert started == starts
    assert all(rounds), "every thread was at work"
    beside = f"beside torch {torch}" if torch else "without torch, which is not installed"
    figure("F11", start_method, f"{started} of {starts}, slowest {slowest_s:.1f} s, {beside}")


@pytest.mark.timeout(30)
def test_a_forked_worker_may_answer_before_the_caller_has_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = ProcessWorker.__init__

    def late(self: ProcessWorker, assignment: Any, terms: Any, signals: Any, *rest: Any) -> None:
        deadline = time.monotonic() + 10
        while not signals.words[ANSWER] and time.monotonic() < deadline:
            os.sched_yield()
        real(self, assignment, terms, signals, *rest)

    monkeypatch.setattr(ProcessWorker, "__init__", late)
    with shoal.make(
        CountingWorld, 2, backend="process", num_workers=2, start_method="fork"
    ) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(2, dtype=np.int64))
