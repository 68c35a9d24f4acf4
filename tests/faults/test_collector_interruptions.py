"""Ctrl-C while a policy collects: no rollout joins what was seen before with what came after."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import SETTINGS, Make, Setting  # noqa: E402
from faults.conftest import Record, Scale  # noqa: E402
from faults.test_ctrl_c_anywhere import ROOT, CtrlC  # noqa: E402
from shoal.rollout.actor import Decision  # noqa: E402
from shoal.rollout.collector import Collector, Goal  # noqa: E402
from shoal.rollout.play import Alone  # noqa: E402
from shoal.rollout.rollout import Rollout  # noqa: E402

NUM_ENVS, HORIZON, LENGTH = 4, 4, 7
PLACES = tuple(str(ROOT / name) for name in ("engine", "vector", "rollout"))
FEW = [
    one
    for one in SETTINGS
    if (one.num_workers == 2 and not one.portable) or one.backend == "serial"
]


class Clock(gymnasium.Env[Any, Any]):
    """Shows how many steps were taken, earns the same, and allows one action only: their parity.

    Where it lives in the process `pid` and finds a certain file, Ctrl-C comes in its step.
    """

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, path: Path, pid: int, size: int) -> None:
        self.observation_space = gymnasium.spaces.Box(0, LENGTH, (size,), np.float32)
        self.path, self.is_near, self.count = path, os.getpid() == pid, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.see()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert int(action) == self.count % 2
        self.count += 1
        if self.is_near and self.path.exists():
            self.path.unlink()
            raise KeyboardInterrupt
        observation, info = self.see()
        return observation, float(self.count), self.count == LENGTH, False, info

    def see(self) -> tuple[Any, dict[str, Any]]:
        mask = np.array([self.count % 2 == 0, self.count % 2 == 1])
        return np.full(self.observation_space.shape, self.count, np.float32), {"action_mask": mask}


class Obedient:
    """Does what is allowed, and remembers how often it was asked in this episode."""

    version = 0

    def initial_state(self, count: int) -> Any:
        return np.zeros((count, 1), np.float32)

    def room(self, shape: Any, dtype: Any) -> Any:
        return np.empty(shape, dtype)

    def reach(self, pages: Any) -> None: ...

    def noise(self, horizon: int, count: int, random: Any) -> Any:
        return np.zeros((horizon, count))

    def act(self, observations: Any, state: Any, masks: Any, noise: Any) -> Decision:
        actions, zeros = masks.argmax(axis=1), np.zeros(len(masks), np.float32)
        return Decision(actions, actions, zeros, zeros, state + 1)

    def value(self, observations: Any, state: Any) -> Any:
        return np.zeros(len(observations[0]), np.float32)


@pytest.fixture(params=[False, True], ids=["together", "in turns"])
def overlap(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def collector(make: Make, path: Path, overlap: bool, size: int) -> Collector[Rollout]:
    clock = functools.partial(Clock, path, os.getpid(), size)
    envs = make([clock] * NUM_ENVS, autoreset="same_step")
    play, goal = Alone(Obedient(), envs), Goal(steps=10**9)
    return Collector(envs, play, horizon=HORIZON, seed=0, goal=goal, overlap=overlap)


def assert_sound(rollout: Rollout) -> None:
    seen = rollout.observations[0][..., 0]
    assert rollout.valid.all()
    assert (rollout.rewards == seen + 1).all()
    assert (rollout.terminations == (seen + 1 == LENGTH)).all()
    assert (rollout.actions == seen % 2).all()
    assert (seen[1:] == np.where(rollout.terminations[:-1], 0, seen[:-1] + 1)).all()
    assert (rollout.starts[1:] == rollout.terminations[:-1]).all()
    assert rollout.states is not None
    assert ((rollout.states[..., 0] == 0) == rollout.starts).all()


@pytest.mark.parametrize("setting", FEW, indirect=True, ids=str)
def test_ctrl_c_at_any_line_of_a_collector_leaves_rollouts_sound(
    make: Make, tmp_path: Path, overlap: bool, setting: Setting, scale: Scale, figure: Record
) -> None:
    source = collector(make, tmp_path / "ctrl-c", overlap, size=1)
    assert_sound(source.collect())
    with CtrlC(places=PLACES) as counter:
        source.collect()
    points = np.linspace(1, counter.lines, scale(short=100, full=2000)).astype(int)
    for at in np.unique(points).tolist():
        try:
            with CtrlC(at, PLACES):
                source.collect()
        except KeyboardInterrupt:
            pass
        assert_sound(source.collect())
    told = source.collect().metrics()
    assert told["episode/return_mean"] == LENGTH * (LENGTH + 1) / 2
    assert told["episode/length_mean"] == LENGTH
    how = "in turns" if overlap else "together"
    figure("F7", f"Ctrl-C at any line of a collector, {how}, {setting}", f"{len(points)} lines")


def test_ctrl_c_in_a_rollout_in_place_leaves_the_next_one_sound(make: Make, tmp_path: Path) -> None:
    source = collector(make, tmp_path / "ctrl-c", False, size=8192)
    for at in (1, 400, 800, 1200):
        assert_sound(source.collect())
        with pytest.raises(KeyboardInterrupt), CtrlC(at, PLACES):
            source.collect()
            raise KeyboardInterrupt
    assert_sound(source.collect())


@pytest.mark.parametrize("setting", FEW, indirect=True, ids=str)
def test_ctrl_c_in_the_middle_of_a_step_leaves_rollouts_sound(
    make: Make, tmp_path: Path, overlap: bool, setting: Setting
) -> None:
    if setting.backend not in ("serial", "hybrid"):
        pytest.skip("there it would be the environment that raises it")
    source = collector(make, tmp_path / "ctrl-c", overlap, size=1)
    for _ in range(LENGTH):
        assert_sound(source.collect())
        (tmp_path / "ctrl-c").touch()
        with pytest.raises(KeyboardInterrupt):
            source.collect()
    assert_sound(source.collect())


def test_a_checkpoint_after_ctrl_c_is_of_where_environments_are(
    make: Make, tmp_path: Path, overlap: bool
) -> None:
    source = collector(make, tmp_path / "ctrl-c", overlap, size=1)
    source.collect()
    try:
        with CtrlC(500, PLACES):
            source.collect()
    except KeyboardInterrupt:
        pass
    arrays, about = source.state()
    other = collector(make, tmp_path / "ctrl-c", overlap, size=1)
    assert other.put_state(arrays, about) == []
    assert_sound(other.collect())
