"""Ctrl-C, or a death, while workers start: nothing stays, and the next start is sound."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import shoal
from conftest import ISOLATED, Make, Setting
from faults.conftest import Record, Scale
from faults.program import Program, wait_until
from faults.test_ctrl_c_anywhere import CtrlC
from faults.test_left_behind import descriptors
from faults.test_quick_steps import interrupt_once
from shoal.engine.crew import Crew
from shoal.engine.line import Line
from shoal.engine.zygote import Zygote
from shoal.testing import CountingWorld

WITHIN_S = 2.0
NUM_ENVS = 2


def zeros() -> np.ndarray:
    return np.zeros(NUM_ENVS, dtype=np.int64)


def server_of(envs: shoal.VectorEnv) -> psutil.Process:
    (pid,) = {psutil.Process(worker.pid).ppid() for worker in envs._pool.workers}
    return psutil.Process(pid)


@contextlib.contextmanager
def paused(process: psutil.Process) -> Iterator[None]:
    """While its process does nothing at all."""
    process.suspend()
    try:
        yield
    finally:
        process.resume()


@contextlib.contextmanager
def ctrl_c_after(delay_s: float) -> Iterator[None]:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(delay_s, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        yield
    timer.join()


@pytest.mark.parametrize("setting", ISOLATED[1::2], indirect=True, ids=str)
def test_ctrl_c_while_a_worker_is_restarted(make: Make, setting: Setting) -> None:
    envs = make([partial(CountingWorld, tag) for tag in range(NUM_ENVS)])
    envs.reset(seed=0)
    server = server_of(envs)
    os.kill(envs._pool.workers[0].pid, signal.SIGKILL)
    assert wait_until(lambda: len(server.children()) == NUM_ENVS - 1, WITHIN_S)
    with paused(server), ctrl_c_after(0.3):
        envs.step(zeros())  # the new worker starts when the caller does not wait for it any more
    for _ in range(3):
        envs.step(zeros())
    assert envs.call("tag") == (0, 1)
    assert server_of(envs) == server
    assert wait_until(lambda: len(server.children()) == NUM_ENVS, WITHIN_S), "the late one ended"


def test_exits_are_forgotten_once_they_are_known() -> None:
    class Dying(CountingWorld):
        def step(self, action: Any) -> Any:
            if action:
                os._exit(3)
            observation, reward, _, truncated, info = super().step(action)
            return observation, reward, True, truncated, info

    with shoal.make(Dying, 1, backend="process", num_workers=1, autoreset="same_step") as envs:
        envs.reset(seed=0)
        for _ in range(5):
            envs.step(np.ones(1, dtype=np.int64))
            envs.step(np.zeros(1, dtype=np.int64))
        assert len(envs._pool.backend._server._exits) == 1


def test_ctrl_c_while_an_exit_is_learned_does_not_lose_it() -> None:
    with shoal.make(CountingWorld, 1, backend="process", num_workers=1) as envs:
        envs.reset(seed=0)

        def lines_until(at: int | None) -> int:
            """Kill the worker, and be interrupted while it is asked how it ended."""
            child = envs._pool.workers[0]._child
            os.kill(child.pid, signal.SIGKILL)
            with CtrlC(at) as counter, contextlib.suppress(KeyboardInterrupt):
                child.outcome()
            assert child.outcome()[0] == signal.SIGKILL
            envs.reset(seed=0)
            envs.step(np.zeros(1, dtype=np.int64))
            return counter.lines

        for at in range(1, lines_until(None)):
            lines_until(at)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket's end
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("setting", ISOLATED[1::2], indirect=True, ids=str)
def test_ctrl_c_at_any_line_of_make_and_close(
    setting: Setting, scale: Scale, figure: Record
) -> None:
    def once() -> None:
        with shoal.make(CountingWorld, NUM_ENVS, backend="process", num_workers=2) as envs:
            envs.reset(seed=0)

    once()
    with CtrlC() as counter:
        once()
    gc.collect()
    before, children = open_sockets(), set(psutil.Process().children(recursive=True))
    points = np.linspace(1, counter.lines, scale(short=30, full=500)).astype(int)
    for at in np.unique(points).tolist():
        with contextlib.suppress(KeyboardInterrupt), CtrlC(at) as ctrl_c:
            once()
        gc.collect()
        are_gone = wait_until(
            lambda: set(psutil.Process().children(recursive=True)) <= children, WITHIN_S
        )
        left = set(psutil.Process().children(recursive=True)) - children
        assert are_gone, f"after Ctrl-C at {ctrl_c.place}: {left}"
    once()
    assert open_sockets() <= before
    figure("F7", f"Ctrl-C at any line of make and close, {setting}", f"{len(points)} lines, sound")


@pytest.mark.parametrize("setting", ISOLATED[1::2], indirect=True, ids=str)
def test_ctrl_c_before_close_has_begun(
    setting: Setting, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = set(psutil.Process().children(recursive=True))
    envs = make(CountingWorld, NUM_ENVS)
    interrupt_once(monkeypatch, Crew, "close", after=False)
    with pytest.raises(KeyboardInterrupt):
        envs.close()
    envs.reset(seed=0)  # for nothing was closed
    interrupt_once(monkeypatch, Crew, "close", after=False)
    with pytest.raises(KeyboardInterrupt):
        envs.close()
    envs._pool._finalizer()  # as when the last reference goes
    assert set(psutil.Process().children(recursive=True)) <= children


def open_sockets() -> set[str]:
    """Not all descriptors: one that comes in the very line that is interrupted may be lost."""
    return {name for name in descriptors() if "socket:" in name or "pipe:" in name}


SLOW_WORLD = """
import os, threading
from shoal.testing import CountingWorld
if os.environ["CALLER"] != str(os.getpid()):
    print("importing", flush=True)
    threading.Event().wait()
"""

SLOW = """
import os, sys, time
sys.path.append({folder!r})
os.environ["CALLER"] = str(os.getpid())
import shoal
from shoal.testing import CountingWorld
try:
    shoal.make("slow_world:CountingWorld", 2, backend="process")
except KeyboardInterrupt:
    print("interrupted", flush=True)
with shoal.make(CountingWorld, 2, backend="process") as envs:
    envs.reset(seed=0)
    print("made", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("portable", ["0", "1"])
def test_ctrl_c_while_a_slow_module_is_imported(portable: str, tmp_path: Path) -> None:
    (tmp_path / "slow_world.py").write_text(SLOW_WORLD)
    source = SLOW.format(folder=str(tmp_path))
    with Program(source, tmp_path, SHOAL_PORTABLE=portable) as program:
        program.wait_for("importing")
        program.kill(signal.SIGINT)
        program.wait_for("interrupted")
        program.wait_for("made")
        assert wait_until(lambda: len(program.processes()) == 1, WITHIN_S)
    assert program.errors == ""


WITH_ZYGOTE = """
import os, signal, threading, time
import psutil
import shoal
from shoal.engine.zygote import Zygote
from shoal.testing import CountingWorld


class Holder:
    pass


def make():
    return shoal.make(CountingWorld, 2, backend="process", num_workers=2)


def below():
    return {process.pid for process in psutil.Process().children(recursive=True)}


holder = Holder()
zygote = Zygote.lease(holder)._process.pid
make().close()
os.kill(zygote, signal.SIGSTOP)
"""


def test_ctrl_c_while_the_zygote_is_busy(tmp_path: Path) -> None:
    source = (
        WITH_ZYGOTE
        + """
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    make()
except KeyboardInterrupt:
    print("interrupted")
os.kill(zygote, signal.SIGCONT)
with make() as envs:
    envs.reset(seed=0)
    server = envs._pool.backend._server
    real = psutil.Process(envs._pool.workers[0].pid).ppid()
    about = open(f"/proc/self/fdinfo/{server._pidfd}").read().split()
    print(about[about.index("Pid:") + 1] == str(real))
deadline = time.monotonic() + 2.0
while below() != {zygote} and time.monotonic() < deadline:
    pass
print(below() == {zygote})
Zygote.release(holder)
print(below() == set())
"""
    )
    with Program(source, tmp_path) as program:
        assert program.output().split() == ["interrupted", "True", "True", "True"]
    assert program.errors == ""


def test_a_zygote_that_dies_is_told_and_replaced(tmp_path: Path) -> None:
    source = (
        WITH_ZYGOTE
        + """
threading.Timer(0.3, os.kill, (zygote, signal.SIGKILL)).start()
try:
    make()
except shoal.WorkerDied as error:
    print(error.phase, "Try `python -c 'import ...'`" in str(error))
with make() as envs:
    envs.reset(seed=0)
Zygote.release(holder)
print(below() == set())
"""
    )
    with Program(source, tmp_path) as program:
        assert program.output().split() == ["start", "True", "True"]
    assert program.errors == ""


def test_ctrl_c_when_the_zygote_has_just_started(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(socket.socket):
        def __exit__(self, *args: object) -> None:
            super().__exit__(*args)
            raise KeyboardInterrupt

    real, children = Line.pair, set(psutil.Process().children())

    def pair() -> tuple[Line, socket.socket]:
        line, theirs = real()
        return line, Interrupted(fileno=theirs.detach())

    monkeypatch.setattr(Line, "pair", pair)
    with pytest.raises(KeyboardInterrupt):
        Zygote()
    assert set(psutil.Process().children()) == children


@pytest.mark.parametrize("delay_s", [0.02, 0.1, 0.2])
def test_ctrl_c_while_the_zygote_starts(delay_s: float, tmp_path: Path) -> None:
    source = f"""
import os, signal, sys, threading
import shoal
from shoal.testing import CountingWorld
threading.Timer({delay_s!r}, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    shoal.make(CountingWorld, 2, backend="process", num_workers=2)
    threading.Event().wait(10)
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.read()
"""
    with Program(source, tmp_path) as program:
        program.wait_for("interrupted")
        assert wait_until(lambda: len(program.processes()) == 1, WITHIN_S)
    assert program.errors == ""
