"""F6: a caller that is killed takes everything along."""

from __future__ import annotations

import itertools
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from faults.conftest import Record, Scale
from faults.program import Program, lasting_names, shared_names

WITHIN_S = 2.0
START_METHODS = ["forkserver", "spawn", "fork"]

PROGRAM = """
import collections, itertools, sys, threading
import numpy as np
import shoal
from shoal.testing import CountingWorld

START_METHOD, MOMENT = {start_method!r}, {moment!r}


class World(CountingWorld):
    def __init__(self):
        self.reach("construct")
        super().__init__()

    def reset(self, **kwargs):
        self.reach("reset")
        return super().reset(**kwargs)

    @property
    def step(self):  # looked up when the world takes its place at the rows
        self.reach("attach")
        return self.take_step

    def take_step(self, action):
        self.reach("step")
        if MOMENT == "holding the interpreter":
            print(MOMENT, flush=True)
            collections.deque(itertools.repeat(None), maxlen=0)
        return super().step(action)

    def reach(self, moment):
        if moment == MOMENT:
            print(MOMENT, flush=True)
            threading.Event().wait()


envs = shoal.make(World, 4, backend="process", num_workers=2, start_method=START_METHOD)
envs.reset(seed=0)
if MOMENT == "idle":
    print(MOMENT, flush=True)
    threading.Event().wait()
for count in itertools.count():
    envs.step(np.zeros(4, dtype=np.int64))
    if MOMENT == "stepping" and count == 10:
        print(MOMENT, flush=True)
"""
MOMENTS = ["stepping", "construct", "reset", "step", "idle", "attach"]
PORTABLE_MOMENTS = [moment for moment in MOMENTS if moment != "construct"]
"""Only those at which all workers are up: while the interpreter of one starts, its semaphores have
names, and a kill of the caller leaves them behind. That is told in the documentation."""


class Remains(NamedTuple):
    """What a killed program has left behind, and how long its processes took to end."""

    processes: int
    names: set[str]
    files: list[Path]
    took_s: float

    def __bool__(self) -> bool:
        return bool(self.processes or self.names or self.files)


def kill_at(moment: str, start_method: str, group: bool, folder: Path, **variables: str) -> Remains:
    """Kill a program at this moment and look for what is left of it."""
    named = shared_names()
    source = PROGRAM.format(start_method=start_method, moment=moment)
    with Program(source, folder, **variables) as program:
        program.wait_for(moment)
        assert len(program.processes()) > 2
        begun = time.monotonic()
        program.kill(signal.SIGKILL, group=group)
        program.process.wait()
        left = program.left_after(WITHIN_S)
        took_s = time.monotonic() - begun
        names = lasting_names(named, WITHIN_S)
        return Remains(len(left), names, list(program.temporary.iterdir()), took_s)


def summary(remains: list[Remains]) -> str:
    clean = [one for one in remains if not one]
    slowest_s = max((one.took_s for one in clean), default=0.0)
    return f"{len(clean)} of {len(remains)} clean, slowest {slowest_s:.2f} s"


@pytest.mark.parametrize("group", [False, True], ids=["caller", "group"])
@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_killed_caller_leaves_nothing(
    start_method: str, group: bool, tmp_path: Path, scale: Scale, figure: Record
) -> None:
    moments = cycled(MOMENTS, scale(short=1, full=20))
    remains = [kill_at(moment, start_method, group, tmp_path) for moment in moments]
    figure("F6", f"{start_method}, {'group' if group else 'caller'}", summary(remains))
    assert not any(remains)


@pytest.mark.parametrize("group", [False, True], ids=["caller", "group"])
def test_a_killed_caller_leaves_nothing_on_the_portable_path(
    group: bool, tmp_path: Path, scale: Scale, figure: Record
) -> None:
    moments = cycled(PORTABLE_MOMENTS, scale(short=1, full=20))
    remains = [kill_at(moment, "spawn", group, tmp_path, SHOAL_PORTABLE="1") for moment in moments]
    figure("F6", f"portable path, {'group' if group else 'caller'}", summary(remains))
    assert not any(remains)


@pytest.mark.parametrize(
    "start_method",
    [
        "forkserver",
        "spawn",
        "fork",
    ],
)
def test_a_worker_that_holds_the_interpreter_goes_too(
    start_method: str, tmp_path: Path, figure: Record
) -> None:
    remains = kill_at("holding the interpreter", start_method, False, tmp_path)
    figure("F6", f"{start_method}, worker in a C loop", summary([remains]))
    assert not remains


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_server_that_is_importing_goes_too(
    start_method: str, tmp_path: Path, figure: Record
) -> None:
    (tmp_path / "slow_world.py").write_text(SLOW_WORLD)
    source = f"""
import os, sys
sys.path.append({str(tmp_path)!r})
os.environ["CALLER"] = str(os.getpid())
import shoal
shoal.make("slow_world:CountingWorld", 2, backend="process", start_method={start_method!r})
"""
    with Program(source, tmp_path) as program:
        program.wait_for("importing")
        program.kill(signal.SIGKILL)
        program.process.wait()
        left = program.left_after(WITHIN_S)
    figure("F6", f"{start_method}, server importing", f"{len(left)} processes left")
    assert left == []


SLOW_WORLD = """
import os, threading
from shoal.testing import CountingWorld
if os.environ["CALLER"] != str(os.getpid()):
    print("importing", flush=True)
    threading.Event().wait()
"""


def cycled(moments: list[str], count: int) -> list[str]:
    return list(itertools.islice(itertools.cycle(moments), count))
