"""Is a Game Boy that is killed or hangs rebuilt, and does the run go on?"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.recovering import hold_the_interpreter, kill_worker
from shoal.envs.gameboy import ACTIONS, TIDEKEEP, GameBoyEnv
from trace_of import assert_same

NUM_ENVS, NUM_STEPS, AT = 4, 40, 23
LIMIT_S = 3.0
ID = f"shoal.envs.gameboy:{TIDEKEEP}"


class Hanging(GameBoyEnv):
    """Hangs once, in the `at`-th step of the process that finds no such file yet."""

    def __init__(self, marker: Path | None = None, at: int = AT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._marker, self._left = marker, at

    def step(self, action: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._marker is not None and self._is_first():
            hold_the_interpreter("stuck in the emulator")
        return super().step(action)

    def _is_first(self) -> bool:
        assert self._marker is not None
        try:
            os.close(os.open(self._marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


def play(make_env: Any, on_failure: str, kills: bool = False, **limits: Any) -> tuple[Any, Any]:
    """All that was returned, and what the engine tells of it."""
    factories = [make_env, *[lambda: GameBoyEnv(episode_length=15)] * (NUM_ENVS - 1)]
    with shoal.make(
        factories, backend="process", num_workers=2, on_failure=on_failure, **limits
    ) as envs:
        actions = np.random.default_rng(0).integers(len(ACTIONS), size=(NUM_STEPS, NUM_ENVS))
        steps: list[Any] = [envs.reset(seed=1)]
        for turn, row in enumerate(actions):
            if kills and turn == AT:
                kill_worker(envs, 0)
            steps.append(envs.step(row))
        return steps, envs.stats()


def plain() -> GameBoyEnv:
    return GameBoyEnv(episode_length=15)


@pytest.fixture
def hanging(tmp_path: Path) -> Any:
    return lambda: Hanging(tmp_path / "hung", episode_length=15)


def test_a_game_boy_that_hangs_is_replaced_and_its_episode_goes_on(hanging: Any) -> None:
    steps, stats = play(hanging, "replay", step_timeout_s=LIMIT_S)
    assert (stats["timeouts"], stats["replays"] > 0) == (1, True)
    assert_same(steps, play(plain, "replay")[0])


@pytest.mark.parametrize("how", ["killed", "hung"])
def test_it_can_begin_anew_instead_and_nobody_else_notices(hanging: Any, how: str) -> None:
    is_killed = how == "killed"
    make_env = plain if is_killed else hanging
    limits = {} if is_killed else {"step_timeout_s": LIMIT_S}
    steps, stats = play(make_env, "restart", kills=is_killed, **limits)
    assert stats["restarts"] == 2, "both environments of that worker"
    expected, _ = play(plain, "restart")
    lost = [turn for turn, step in enumerate(steps[1:]) if "restarted" in step[4]]
    assert len(lost) == 1
    _, rewards, terminated, truncated, infos = steps[1 + lost[0]]
    assert infos["restarted"][0]
    assert (rewards[0], terminated[0], truncated[0]) == (0.0, False, True)
    for step, other in zip(
        steps[1:], expected[1:], strict=True
    ):  # environments of the other worker
        for one, two in zip(step[:4], other[:4], strict=True):
            np.testing.assert_array_equal(one[2:], two[2:])


@pytest.fixture
def point() -> Iterator[tuple[bytes, Any]]:
    """A saved state, and what is seen there."""
    env = GameBoyEnv()
    env.reset(seed=3)
    for action in (5, 5, 3, 3, 6):
        observation, *_ = env.step(action)
    yield env.save_state(), observation
    env.close()


def seen_after_a_death(envs: shoal.VectorEnv) -> Any:
    """What the step says that was under way."""
    envs.step(np.array([4, 4]))
    kill_worker(envs, 0)
    observations, _, _, truncated, infos = envs.step(np.array([4, 4]))
    assert truncated.all()
    assert infos["restarted"].all()
    return observations


RESTARTING: dict[str, Any] = {
    "backend": "process",
    "num_workers": 1,
    "on_failure": "restart",
    "autoreset": "same_step",
}


def test_a_lost_game_boy_begins_in_its_saved_state_again(point: tuple[bytes, Any]) -> None:
    """The reset point of an environment with a state is that state, also after a death."""
    state, expected = point
    with shoal.make(lambda: GameBoyEnv(state=state), 2, **RESTARTING) as envs:
        envs.reset(seed=0)
        for observation in seen_after_a_death(envs):
            np.testing.assert_array_equal(observation, expected)


@pytest.mark.parametrize("env", [GameBoyEnv, ID])
def test_a_reset_point_that_was_set_outlives_its_worker(env: Any, point: tuple[bytes, Any]) -> None:
    state, expected = point
    with shoal.make(env, 2, **RESTARTING) as envs:
        envs.reset(seed=0)
        envs.set_attr("start_state", [state, None])
        there, elsewhere = envs.reset(seed=0)[0]
        np.testing.assert_array_equal(there, expected)
        assert (elsewhere != expected).any()
        there, elsewhere = seen_after_a_death(envs)
        np.testing.assert_array_equal(there, expected)
        assert (elsewhere != expected).any()


def test_replayed_from_a_state_given_to_reset_it_is_where_it_was(point: tuple[bytes, Any]) -> None:
    """A recovery knows where the lost episode began, and what was done in it."""
    state, _ = point
    actions = np.random.default_rng(4).integers(len(ACTIONS), size=(9, 2))

    def played(is_killed: bool) -> list[Any]:
        with shoal.make(GameBoyEnv, 2, **{**RESTARTING, "on_failure": "replay"}) as envs:
            steps: list[Any] = [envs.reset(seed=0, options={"state": state})]
            for turn, row in enumerate(actions):
                if is_killed and turn == 5:
                    kill_worker(envs, 0)
                steps.append(envs.step(row))
            assert envs.stats()["replays"] == (2 if is_killed else 0)
            return steps

    assert_same(played(is_killed=True), played(is_killed=False))


def test_a_state_given_to_reset_is_for_one_episode(point: tuple[bytes, Any]) -> None:
    """As with any reset that comes by itself, nobody says where the next one begins."""
    state, expected = point
    with shoal.make(GameBoyEnv, 2, **RESTARTING) as envs:
        observations, _ = envs.reset(seed=0, options={"state": state})
        np.testing.assert_array_equal(observations[0], expected)
        for observation in seen_after_a_death(envs):
            assert (observation != expected).any()


class Dying(Hanging):
    """The same, but its process ends instead."""

    def step(self, action: Any) -> Any:
        self._left -= 1
        if self._left == 0 and self._marker is not None and self._is_first():
            os.kill(os.getpid(), signal.SIGKILL)
        return GameBoyEnv.step(self, action)


def trained(folder: Path, make_env: Any) -> tuple[dict[str, Any], Any]:
    """What a short run on two Game Boys in a process each learns, and what it tells of itself."""
    checkpoint = pytest.importorskip("shoal.training.checkpoint")
    run = shoal.train(
        "ppo",
        env=make_env,
        n_envs=2,
        total_steps=160,
        n_steps=40,
        batch_size=40,
        seed=3,
        backend="process",
        num_workers=2,
        step_timeout_s=LIMIT_S,
        eval_every=0,
        eval_episodes=1,
        calibrate=False,
        run_dir=folder,
        shows=False,
    )
    final = run.folder / "checkpoints" / "final_model.safetensors"
    return checkpoint.read(final).tensors, run.summary


@pytest.mark.parametrize("fate", [Hanging, Dying])
def test_training_learns_the_same_whatever_becomes_of_its_game_boys(
    tmp_path: Path, fate: type[Hanging]
) -> None:
    expected, calm = trained(tmp_path / "calm", plain)
    learnt, lossy = trained(
        tmp_path / "lossy", lambda: fate(tmp_path / "lost once", at=50, episode_length=15)
    )
    assert (calm["replays"], lossy["replays"], lossy["restarts"]) == (0, 1, 0)
    assert learnt.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(learnt[name], values, err_msg=name)
