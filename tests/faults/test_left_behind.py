"""Making and closing leave nothing behind: no process, name, descriptor or file."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import shoal
from faults.program import SRC, lasting_names, shared_names
from shoal.testing import CountingWorld


def descriptors() -> set[str]:
    """What this process has open, by what it is."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{fd}:{os.readlink(f'/proc/self/fd/{fd}')}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


@pytest.mark.parametrize("portable", [False, True])
def test_making_and_closing_leaves_nothing(
    portable: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if portable:
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with shoal.make(CountingWorld, 4, backend="process", num_workers=2) as envs:
        envs.reset(seed=0)
    del envs
    gc.collect()
    before, children = descriptors(), psutil.Process().children(recursive=True)
    named = shared_names()
    for _ in range(3):
        with shoal.make(CountingWorld, 4, backend="process", num_workers=2) as envs:
            envs.reset(seed=0)
            envs.send(np.zeros(4, dtype=np.int64))
            envs.recv(min_envs=1)
        del envs
    gc.collect()
    assert descriptors() == before
    assert lasting_names(named, within_s=2.0) == set()
    assert list(tmp_path.iterdir()) == []
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

    gc.collect()  # what earlier tests may have left to it
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
