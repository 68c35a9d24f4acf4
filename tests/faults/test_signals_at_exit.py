"""F7: Ctrl-C and SIGTERM end the program, and only the program has anything to say."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import Record
from faults.program import Program, wait_until
from shoal.testing import CountingWorld

WITHIN_S = 2.0
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}
START_METHODS = ["forkserver", "spawn", "fork"]
IN_A_SHELL = ("bash", "-c", '"$@"; echo "status $?"', "bash")

PROGRAM = """
import os, threading
import numpy as np
import shoal
from shoal.testing import CountingWorld

PHASE, WORK_S, START_METHOD, INFOS = {phase!r}, {work_s!r}, {start_method!r}, {infos!r}


class World(CountingWorld):
    def __init__(self):
        super().__init__(infos=INFOS)

    def reset(self, **kwargs):
        self.work("reset")
        return super().reset(**kwargs)

    def step(self, action):
        self.work("recv" if PHASE == "recv" else "step")
        return super().step(action)

    def work(self, phase):
        if phase == PHASE:
            print("in", phase, flush=True)
            threading.Event().wait(WORK_S)


envs = shoal.make(World, 4, backend="process", num_workers=2, start_method=START_METHOD)
print("caller", os.getpid(), flush=True)
while True:
    envs.reset(seed=0)
    for _ in range(10):
        if PHASE == "recv":
            envs.send(np.zeros(4, dtype=np.int64))
            envs.recv()
        else:
            envs.step(np.zeros(4, dtype=np.int64))
"""


def program_in(
    phase: str,
    folder: Path,
    *,
    work_s: float | None = 0.1,
    start_method: str = "forkserver",
    infos: str = "none",
    inside: Sequence[str] = (),
) -> Program:
    """A program whose environments take so long (None: for ever) in this phase.

    Once the last worker, which is worker 1, is at it, the caller is waiting for both.
    """
    source = PROGRAM.format(phase=phase, work_s=work_s, start_method=start_method, infos=infos)
    return Program(source, folder, inside=inside)


def check_screen(number: int, shown: str) -> None:
    """Of Ctrl-C there is the caller's own traceback, of SIGTERM none; workers are silent."""
    assert shown.count("Traceback") == (number == signal.SIGINT)
    assert shown.count("\nKeyboardInterrupt") == (number == signal.SIGINT)
    assert "[worker" not in shown


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("phase", ["reset", "step", "recv"])
def test_the_shell_sees_which_signal_it_was(
    phase: str, number: signal.Signals, tmp_path: Path, figure: Record
) -> None:
    with program_in(phase, tmp_path, inside=IN_A_SHELL) as program:
        caller = int(program.wait_for("caller").split()[1])
        program.wait_for(f"[worker 1] in {phase}")
        begun = time.monotonic()
        os.kill(caller, number)
        status = int(program.wait_for("status").split()[1])
        took_s = time.monotonic() - begun
        assert program.left_after(WITHIN_S) == []
    assert status == SIGNALS[number]
    assert took_s < WITHIN_S
    check_screen(number, program.errors)
    figure("F7", f"{number.name} in {phase}", f"{took_s:.2f} s, the shell sees {status}")


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_signal_to_the_whole_group_ends_it_just_so(
    start_method: str, number: signal.Signals, tmp_path: Path, figure: Record
) -> None:
    with program_in("step", tmp_path, start_method=start_method) as program:
        program.wait_for("[worker 1] in step")
        begun = time.monotonic()
        program.kill(number, group=True)  # as a terminal does at Ctrl-C
        assert program.process.wait(20) == -number
        took_s = time.monotonic() - begun
        assert program.left_after(WITHIN_S) == []
    assert took_s < WITHIN_S
    check_screen(number, program.errors)
    figure("F7", f"{number.name} to the group, {start_method}", f"{took_s:.2f} s")


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        signal.SIGTERM,
    ],
    ids=lambda number: number.name,
)
def test_an_environment_that_hangs_does_not_hold_up_the_end(
    number: signal.Signals, tmp_path: Path, figure: Record
) -> None:
    with program_in("step", tmp_path, work_s=None) as program:
        program.wait_for("[worker 1] in step")
        begun = time.monotonic()
        program.kill(number)
        program.process.wait(20)
        took_s = time.monotonic() - begun
        assert program.left_after(WITHIN_S) == []
    check_screen(number, program.errors)
    figure("F7", f"{number.name} while an environment hangs", f"{took_s:.2f} s")
    assert took_s < WITHIN_S


def test_a_worker_whose_caller_is_gone_says_nothing(tmp_path: Path, figure: Record) -> None:
    # A fork outlives its caller for a moment; and what is in these infos needs a message.
    with program_in("step", tmp_path, start_method="fork", infos="mixed") as program:
        program.wait_for("[worker 1] in step")
        program.kill(signal.SIGTERM)
        program.process.wait()
        assert program.left_after(WITHIN_S) == []
    tracebacks = program.errors.count("Traceback")
    figure("F7", "a fork answers a caller that is gone", f"{tracebacks} tracebacks on the screen")
    assert program.errors == ""


def test_ctrl_c_between_two_workers_is_raised_at_once(tmp_path: Path, figure: Record) -> None:
    source = """
import os, signal, threading
import shoal
from shoal.testing import CountingWorld


class World(CountingWorld):
    def hang(self, _):
        threading.Event().wait()


class Interrupting:
    pickled = 0

    def __reduce__(self):
        Interrupting.pickled += 1
        if Interrupting.pickled == 2:  # the first worker has its command, the second has not
            print("interrupted", flush=True)
            signal.raise_signal(signal.SIGINT)
        return int, ()


envs = shoal.make(World, 2, backend="process", num_workers=2)
envs.reset(seed=0)
try:
    envs.call("hang", Interrupting())
except KeyboardInterrupt:
    os._exit(0)
"""
    with Program(source, tmp_path) as program:
        program.wait_for("interrupted")
        raised = wait_until(lambda: program.process.poll() == 0, WITHIN_S)
    figure("F7", "SIGINT between two commands", f"{'raised' if raised else 'not raised'} in 2 s")
    assert raised


@pytest.mark.parametrize("start_method", START_METHODS)
def test_the_library_installs_no_signal_handlers(start_method: str, figure: Record) -> None:
    before = dispositions()
    with shoal.make(
        CountingWorld, 4, backend="process", num_workers=2, start_method=start_method
    ) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(4, dtype=np.int64))
        assert dispositions() == before
    assert dispositions() == before
    figure("F7", "signal handlers installed", "none")


def dispositions() -> dict[str, Any]:
    """What each signal does in this process: to Python, to the system, and by wake-up."""
    status = Path("/proc/self/status").read_text().splitlines()
    masks = [line for line in status if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
    wakeup_fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup_fd)
    handlers = {number.name: signal.getsignal(number) for number in signal.Signals}
    return {"masks": masks, "wakeup_fd": wakeup_fd} | handlers
