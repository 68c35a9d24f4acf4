"""Ctrl-C at any line of a recovery: what was under way is not lost, nor is any later one.

A worker is killed, or an environment raises, in each round; in each round Ctrl-C comes a line
(in a short run, three) later. Rounds go on until a recovery has no such line any more.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from conftest import ISOLATED, Make, Setting
from faults.conftest import Record, Scale
from faults.recovering import kill_worker
from faults.test_ctrl_c_anywhere import FEW, ROOT, CtrlC
from shoal import Faults, VectorEnv
from shoal.testing.worlds import CountingWorld

NUM_ENVS, MOST_TIMES = 4, 2
SUPERVISOR = (str(ROOT / "engine" / "supervisor.py"),)
ALL = (*SUPERVISOR, *(str(ROOT / "engine" / f"{name}.py") for name in ("traffic", "crew")))
TWO = [one for one in ISOLATED if one.num_workers == 2 and not one.portable]
SOME = [one for one in FEW if not one.portable]
MANY = 30
"""A recovery has more lines than these."""
Await = Callable[[VectorEnv, int], tuple[bool, dict[int, Any]]]


class CtrlCInRecovery(CtrlC):
    """Not while it is written down what has happened: what that leaves is not trusted."""

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_name in ("finished", "was_reset"):
            return None
        return super()._enter(frame, event, arg)


class Touchy(CountingWorld):
    """Episodes of four steps; the first environment raises where it finds a certain file."""

    min_steps = max_steps = 4

    def __init__(self, tag: int, path: Path) -> None:
        super().__init__(tag, history=False)
        self.path = path

    def step(self, action: Any) -> Any:
        if self.tag == 0 and self.path.exists():
            self.path.unlink()
            raise ValueError("touched")
        return super().step(action)


def actions(count: int = NUM_ENVS) -> Any:
    return np.ones(count, dtype=np.int64)


def in_step(envs: VectorEnv, at: int) -> tuple[bool, dict[int, Any]]:
    """A step of all: whether Ctrl-C came at that line, and nothing, for that is what it takes."""
    try:
        with CtrlCInRecovery(at, SUPERVISOR, MOST_TIMES):
            envs.step(actions())
    except KeyboardInterrupt:
        return True, {}
    return False, {}


def in_recv(envs: VectorEnv, at: int) -> tuple[bool, dict[int, Any]]:
    """The same for steps that were sent; by environment whether its episode was truncated."""
    envs.send(actions())
    has_come, told = False, {}
    while envs.num_sent:
        try:
            with CtrlCInRecovery(-1 if has_come else at, ALL, MOST_TIMES):
                batch = envs.recv(NUM_ENVS)
        except KeyboardInterrupt:
            has_come = True
            continue
        told = dict(zip(batch.env_ids.tolist(), batch.truncations.tolist(), strict=True))
    return has_come, told


@pytest.fixture
def envs(make: Make, tmp_path: Path) -> VectorEnv:
    factories = [functools.partial(Touchy, tag, tmp_path / "touch") for tag in range(NUM_ENVS)]
    return make(factories, on_failure="replay", faults=Faults(on_error="restart"))


def steps_of(envs: VectorEnv) -> list[int]:
    return [record.step for record in envs.call("record")]


@pytest.mark.parametrize("wait", [in_step, in_recv])
@pytest.mark.parametrize("setting", TWO, indirect=True, ids=str)
def test_a_recovery_of_a_worker_survives_ctrl_c(
    envs: VectorEnv, wait: Await, scale: Scale, figure: Record
) -> None:
    for at in itertools.count(1, scale(short=3, full=1)):
        envs.reset(seed=at)
        envs.step(actions())
        kill_worker(envs, 0)
        has_come, told = wait(envs, at)
        assert not any(told.values())
        assert wait is in_step or sorted(told) == list(range(NUM_ENVS))
        assert steps_of(envs) == [2] * NUM_ENVS
        kill_worker(envs, 0)
        truncations = envs.step(actions())[3]
        assert not truncations.any()
        assert steps_of(envs) == [3] * NUM_ENVS
        assert envs.stats()["restarts"] == 0
        if not has_come:
            break
    assert at > MANY
    figure("F7", f"Ctrl-C at any line of a recovery, {wait.__name__}", f"{at - 1} lines, sound")


@pytest.mark.parametrize("wait", [in_step, in_recv])
@pytest.mark.parametrize("setting", SOME, indirect=True, ids=str)
def test_a_mending_of_an_environment_survives_ctrl_c(
    envs: VectorEnv, wait: Await, tmp_path: Path, setting: Setting, scale: Scale
) -> None:
    for at in itertools.count(1, scale(short=3, full=1)):
        envs.reset(seed=at)
        envs.step(actions())
        (tmp_path / "touch").touch()
        has_come, told = wait(envs, at)
        if wait is in_recv:
            assert sorted(told) == list(range(NUM_ENVS))
            assert not any(told[i] for i in range(1, NUM_ENVS))
        assert steps_of(envs)[1:] == [2] * (NUM_ENVS - 1)
        if setting.backend == "process":
            kill_worker(envs, 0)
        truncations = envs.step(actions())[3]
        assert not truncations[1:].any()
        first, *others = steps_of(envs)
        assert first in (0, 3)  # its worker may have been replaced, and then nothing was lost
        assert others == [3] * (NUM_ENVS - 1)
        for _ in range(5):  # an episode that ends takes back what was charged
            envs.step(actions())
        if not has_come:
            break
    assert at > MANY
