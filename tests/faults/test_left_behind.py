"""Nothing is left behind: no process, name, descriptor or file, however it ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import shoal
from shoal.testing import CountingWorld

SRC = str(Path(shoal.__file__).parents[1])
START_METHODS = ["forkserver", "spawn", "fork"]


def descriptors() -> set[str]:
    """What this process has open, by what it is."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{fd}:{os.readlink(f'/proc/self/fd/{fd}')}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def names() -> set[str]:
    """Names in the places where shared memory, semaphores and temporary files live."""
    return {str(p) for place in ("/dev/shm", "/tmp") for p in Path(place).glob("*shoal*")}


@pytest.mark.parametrize("portable", [False, True])
def test_making_and_closing_leaves_nothing(portable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if portable:
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
    with shoal.make(CountingWorld, 4, backend="process", num_workers=2) as envs:
        envs.reset(seed=0)
    del envs
    gc.collect()
    before, named, children = descriptors(), names(), psutil.Process().children(recursive=True)
    for _ in range(3):
        with shoal.make(CountingWorld, 4, backend="process", num_workers=2) as envs:
            envs.reset(seed=0)
            envs.send(np.zeros(4, dtype=np.int64))
            envs.recv(min_envs=1)
        del envs
    gc.collect()
    assert descriptors() == before
    assert names() == named
    assert psutil.Process().children(recursive=True) == children


def test_after_the_last_close_there_is_no_process_left() -> None:
    program = (
        "import psutil, shoal\n"
        "from shoal.testing import CountingWorld\n"
        "pools = [shoal.make(CountingWorld, 2, backend='process') for _ in range(2)]\n"
        "for pool in pools:\n"
        "    print(len(psutil.Process().children(recursive=True)) > 0)\n"
        "    pool.close()\n"
        "print(psutil.Process().children(recursive=True))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": SRC},
        text=True,
        capture_output=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (["True", "True", "[]"], "")


def test_a_constructor_that_raises_leaves_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def broken() -> Any:
        raise OSError("no simulator here")

    before, children = descriptors(), psutil.Process().children(recursive=True)
    with pytest.raises(shoal.EnvRaised, match="no simulator here") as caught:
        shoal.make(broken, 4, backend="process", num_workers=2)
    del caught
    gc.collect()
    assert psutil.Process().children(recursive=True) == children
    assert descriptors() == before
    out, err = capfd.readouterr()
    assert (out, err) == ("", ""), "what went wrong is in the exception, not on the screen"


def test_when_one_constructor_raises_the_others_are_closed(tmp_path: Path) -> None:
    class Closing(CountingWorld):
        def close(self) -> None:
            (tmp_path / "closed").touch()

    with pytest.raises(shoal.EnvRaised, match="ZeroDivisionError"):
        shoal.make([Closing, lambda: 1 / 0], backend="process", num_workers=2)
    assert (tmp_path / "closed").exists()


@pytest.mark.parametrize("copy", [True, False])
def test_arrays_stay_readable_after_close(copy: bool) -> None:
    envs = shoal.make(CountingWorld, 4, backend="process", num_workers=2, copy=copy)
    observations, _ = envs.reset(seed=5)
    envs.close()
    del envs
    gc.collect()
    assert observations[:, 0].tolist() == [5, 6, 7, 8]


def test_descriptors_grow_with_workers_not_with_environments() -> None:
    def held(num_envs: int) -> int:
        with shoal.make(CountingWorld, num_envs, backend="process", num_workers=2) as envs:
            envs.reset(seed=0)
            return len(descriptors())

    assert held(200) == held(4)


PROGRAM = """
import numpy, os, sys, time, shoal
from shoal.testing import CountingWorld
envs = shoal.make(
    lambda: CountingWorld(work_s={work_s}),
    4,
    backend="process",
    num_workers=2,
    start_method="{start_method}",
)
envs.reset(seed=0)
print(*[worker.pid for worker in envs._pool.workers], flush=True)
while True:
    envs.step(numpy.zeros(4, dtype=numpy.int64))
"""


def running_program(
    start_method: str, work_s: float = 0.05
) -> tuple[subprocess.Popen[str], list[Any]]:
    """A caller in a group of its own that steps for ever, and all processes below it."""
    program = PROGRAM.format(start_method=start_method, work_s=work_s)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": SRC},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    workers = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    below = psutil.Process(process.pid).children(recursive=True)
    return process, list({*workers, *below})


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize("group", [False, True])
def test_a_caller_that_is_killed_takes_everything_along(start_method: str, group: bool) -> None:
    named = names()
    process, below = running_program(start_method)
    (os.killpg if group else os.kill)(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(below, timeout=2)
    assert not alive
    assert names() == named


@pytest.mark.parametrize("start_method", START_METHODS)
def test_ctrl_c_ends_the_caller_without_the_workers_tracebacks(start_method: str) -> None:
    process, below = running_program(start_method)
    begun = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - begun < 10
    assert process.returncode in (-signal.SIGINT, 130)
    assert "KeyboardInterrupt" in err
    assert "[worker" not in err
    assert err.count("Traceback") == 1
    _, alive = psutil.wait_procs(below, timeout=2)
    assert not alive


def test_sigterm_ends_everything() -> None:
    process, below = running_program("forkserver")
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM
    _, alive = psutil.wait_procs(below, timeout=2)
    assert not alive
