"""F18: processes that an environment has started go when their worker goes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import shoal
from faults.conftest import Record
from faults.program import Program, wait_until
from shoal import EnvRaised, WorkerDied, WorkerTimeout
from shoal.testing import CountingWorld

WITHIN_S = 2.0
NUM_ENVS = 2


class Simulator(CountingWorld):
    """Has a process of its own, which has one too, and never ends either."""

    hangs = False

    def __init__(self) -> None:
        super().__init__()
        self.child = subprocess.Popen(["sh", "-c", "while :; do sleep 60; done"])

    def step(self, action: Any) -> Any:
        if self.hangs:
            threading.Event().wait()
        return super().step(action)

    def crash(self) -> None:
        os._exit(3)


@pytest.fixture(params=["forkserver", "spawn", "fork", "portable"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    start_method = request.param
    if start_method == "portable":
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
        start_method = "spawn"
    return {"backend": "process", "num_workers": 2, "start_method": start_method}


def running(**kwargs: Any) -> tuple[shoal.VectorEnv, list[set[int]]]:
    """Environments, and the numbers of the processes below each of their workers."""
    envs = shoal.make(Simulator, NUM_ENVS, on_failure="raise", **kwargs)
    workers = [psutil.Process(worker.pid) for worker in envs._pool.workers]
    # The simulator and the `sleep` that it is waiting for.
    assert wait_until(lambda: all(len(w.children(recursive=True)) == 2 for w in workers), 10.0)
    envs.reset(seed=0)
    return envs, [{child.pid for child in w.children(recursive=True)} for w in workers]


def all_gone(pids: set[int]) -> bool:
    """Whether they end in time."""
    return wait_until(lambda: all(map(is_over, pids)), WITHIN_S)


def is_over(pid: int) -> bool:
    """Whether a process has ended, even if its last parent, the system's, has yet to notice."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def zeros() -> np.ndarray:
    return np.zeros(NUM_ENVS, dtype=np.int64)


def test_the_children_of_a_killed_worker_go(where: dict[str, Any], figure: Record) -> None:
    envs, (others, its_own) = running(**where)
    with envs:
        os.kill(envs._pool.workers[1].pid, signal.SIGKILL)
        assert all_gone(its_own)
        assert not any(map(is_over, others))
    figure("F18", "worker killed", "children gone")


def test_the_children_of_a_crashed_worker_go(where: dict[str, Any], figure: Record) -> None:
    envs, (_, its_own) = running(**where)
    with envs:
        with pytest.raises(WorkerDied, match="exited with code 3"):
            envs.call("crash", env_ids=[1])
        assert all_gone(its_own)
    figure("F18", "worker crashed", "children gone")


def test_the_children_of_a_hanging_environment_go(where: dict[str, Any], figure: Record) -> None:
    envs, (_, its_own) = running(step_timeout_s=0.3, **where)
    with envs:
        envs.set_attr("hangs", True, env_ids=[1])
        with pytest.raises(WorkerTimeout):
            envs.step(zeros())
        assert all_gone(its_own)
    figure("F18", "environment hung", "children gone")


def test_the_children_of_closed_environments_go(where: dict[str, Any], figure: Record) -> None:
    envs, below = running(**where)
    envs.close()
    assert all_gone(set.union(*below))
    figure("F18", "closed", "children gone")


def test_the_children_of_half_built_environments_go(
    where: dict[str, Any], tmp_path: Path, figure: Record
) -> None:
    class Broken(Simulator):
        def __init__(self) -> None:
            super().__init__()
            (tmp_path / str(self.child.pid)).touch()
            raise OSError("no license for this simulator")

    with pytest.raises(EnvRaised, match="no license"):
        shoal.make(Broken, NUM_ENVS, **where)
    pids = {int(path.name) for path in tmp_path.iterdir()}
    assert pids
    assert all_gone(pids)
    figure("F18", "constructor raised", "children gone")


PROGRAM = """
import threading
import shoal
from faults.test_offspring import Simulator

envs = shoal.make(Simulator, 2, backend="process", num_workers=2, start_method={start_method!r})
envs.reset(seed=0)
print("ready", flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize("group", [False, True], ids=["caller", "group"])
@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_the_children_of_a_killed_callers_workers_go(
    start_method: str, group: bool, tmp_path: Path, figure: Record
) -> None:
    with Program(PROGRAM.format(start_method=start_method), tmp_path) as program:
        program.wait_for("ready")
        assert {"sh", "sleep"} <= {process.name() for process in program.processes()}
        program.kill(signal.SIGKILL, group=group)
        program.process.wait()
        assert program.left_after(WITHIN_S) == []
    figure("F18", "caller killed", "children gone")
