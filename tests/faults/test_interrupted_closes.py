"""Ctrl-C while environments are being closed: it is raised, and everyone is closed all the same."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

import shoal
from faults.conftest import Record, Scale
from faults.program import wait_until
from faults.test_ctrl_c_anywhere import CtrlC
from shoal.testing import CountingWorld

WITHIN_S = 2.0
_BEGINNING = 20
"""So many lines until there is something that was begun."""


def below() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a socket's end
@pytest.mark.parametrize("start_method", ["forkserver", "fork"])
def test_ctrl_c_at_any_line_of_close(start_method: str, scale: Scale, figure: Record) -> None:
    def make() -> shoal.VectorEnv:
        return shoal.make(
            CountingWorld, 2, backend="process", num_workers=2, start_method=start_method
        )

    before, kept = below(), make()
    with CtrlC() as counter:
        kept.close()
    assert below() <= before
    points = np.unique(np.linspace(1, counter.lines, scale(short=40, full=400)).astype(int))
    for at in points.tolist():
        envs = make()
        with contextlib.suppress(KeyboardInterrupt), CtrlC(at):
            envs.close()
        if not wait_until(lambda: below() <= before, 0.1):
            assert at < _BEGINNING, f"line {at} of {counter.lines}"
        envs.close()
        assert wait_until(lambda: below() <= before, WITHIN_S), f"line {at} of {counter.lines}"
    figure("F7", f"Ctrl-C at any line of close, {start_method}", f"{len(points)} lines, sound")


def test_after_ctrl_c_nobody_is_waited_for(tmp_path: Path) -> None:
    class Slow(CountingWorld):
        def close(self) -> None:
            (tmp_path / f"closing-{self.tag}").touch()
            threading.Event().wait()

    before = below()
    envs = shoal.make([partial(Slow, tag) for tag in range(3)], backend="process", num_workers=3)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        assert wait_until(lambda: len(list(tmp_path.iterdir())) == 3, 10.0)
        signal.pthread_kill(main, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        envs.close(timeout_s=60.0)
    assert time.monotonic() - begun < 10.0
    interrupting.join()
    assert wait_until(lambda: below() <= before, WITHIN_S)


def test_ctrl_c_in_one_close_leaves_no_other_out() -> None:
    closed = []

    class Interrupting(CountingWorld):
        def close(self) -> None:
            closed.append(self.tag)
            if self.tag == 1:
                raise KeyboardInterrupt

    envs = shoal.make([partial(Interrupting, tag) for tag in range(4)], backend="serial")
    with pytest.raises(KeyboardInterrupt):
        envs.close()
    envs.close()
    assert closed == [0, 1, 2, 3]
