"""A worker under Stable-Baselines3 dies: training goes on, and nothing is left behind."""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from faults.program import Program
from faults.recovering import Scripted, kill_worker
from shoal import EnvRaised, Faults, WorkerDied, WorkerTimeout
from shoal.testing import CountingWorld
from shoal.vector.sb3 import DummyVecEnv, SubprocVecEnv
from trace_of import assert_same


class Long(CountingWorld):
    min_steps = max_steps = 1000


def worlds(count: int) -> list[Any]:
    return [functools.partial(Long, tag) for tag in range(count)]


rebuilding = functools.partial(SubprocVecEnv, on_failure="restart")


def step(envs: Any) -> Any:
    return envs.step(np.zeros(envs.num_envs, np.int64))


def test_a_lost_episode_ends_as_one_that_was_cut_off() -> None:
    """Those of other workers go on as if nothing had been."""
    envs, calm = rebuilding(worlds(4), num_workers=2), DummyVecEnv(worlds(4))
    for one in (envs, calm):
        one.seed(7)
        one.reset()
        for _ in range(3):
            last = step(one)
    kill_worker(envs, 1)
    observations, rewards, dones, infos = step(envs)
    undisturbed, earned, *_ = step(calm)
    assert dones.tolist() == [False, False, True, True]
    assert_same(observations[:2], undisturbed[:2])
    assert_same(rewards, np.concatenate([earned[:2], np.zeros(2, np.float32)]))
    for i in (0, 1):
        assert infos[i] == {"TimeLimit.truncated": False}
    for i in (2, 3):
        assert infos[i].pop("terminal_observation").tolist() == last[0][i].tolist()
        assert infos[i] == {"restarted": True, "TimeLimit.truncated": True}
        assert envs.reset_infos[i] == {"restarted": True}
        assert observations[i][4] == 0  # the first observation of a new episode
    assert step(envs)[2].tolist() == [False] * 4
    assert envs.stats()["restarts"] == 2
    envs.close()


def test_a_death_between_the_halves_of_a_step_is_one_as_well() -> None:
    envs = rebuilding(worlds(2), num_workers=2)
    envs.seed(7)
    envs.reset()
    step(envs)
    kill_worker(envs, 0)
    envs.step_async(np.zeros(2, np.int64))
    _, _, dones, infos = envs.step_wait()
    assert dones.tolist() == [True, False]
    assert infos[0]["TimeLimit.truncated"]
    envs.close()


def test_with_replay_nothing_is_seen_of_it() -> None:
    env_fns = [functools.partial(CountingWorld, tag, history=False) for tag in range(4)]
    envs = SubprocVecEnv(env_fns, num_workers=2, on_failure="replay")
    calm = DummyVecEnv(env_fns)
    for one in (envs, calm):
        one.seed(7)
        one.reset()
    for k in range(60):
        if k % 9 == 4:
            kill_worker(envs, k % 2)
        assert_same(list(step(envs)), list(step(calm)))
    assert envs.stats()["replays"] > 0
    envs.close()


def test_it_is_an_error_unless_asked_and_closing_returns() -> None:
    envs = SubprocVecEnv(worlds(2), num_workers=2)
    envs.seed(7)
    envs.reset()
    kill_worker(envs, 1)
    with pytest.raises(WorkerDied, match="worker 1"):
        step(envs)
    envs.close()


def test_an_environment_that_hangs_is_cut_off_too(tmp_path: Path) -> None:
    hanging = functools.partial(Scripted, 1, folder=tmp_path, script=[("step 2", "hang_sleep")])
    envs = rebuilding([Long, hanging], num_workers=2, step_timeout_s=1.0)
    envs.seed(7)
    envs.reset()
    assert step(envs)[2].tolist() == [False, False]
    _, _, dones, infos = step(envs)
    assert dones.tolist() == [False, True]
    assert infos[1]["restarted"]
    assert envs.stats()["timeouts"] == 1
    envs.close()


def test_a_hang_is_an_error_unless_asked(tmp_path: Path) -> None:
    hanging = functools.partial(Scripted, 0, folder=tmp_path, script=[("step 1", "hang_sleep")])
    envs = SubprocVecEnv([hanging], step_timeout_s=1.0)
    envs.reset()
    with pytest.raises(WorkerTimeout):
        step(envs)
    envs.close()


def test_an_exception_may_cost_its_episode_only(tmp_path: Path) -> None:
    failing = functools.partial(Scripted, 1, folder=tmp_path, script=[("step 2", "raise")])
    envs = SubprocVecEnv([Long, failing], faults=Faults(on_error="restart"))
    envs.seed(7)
    envs.reset()
    step(envs)
    assert step(envs)[2].tolist() == [False, True]
    envs.close()


def test_attributes_are_set_again_in_what_is_rebuilt() -> None:
    envs = rebuilding(worlds(2), num_workers=1)
    envs.seed(7)
    envs.reset()
    envs.set_attr("bonus", 100.0, indices=1)
    kill_worker(envs, 0)
    step(envs)
    assert (step(envs)[1] > 50).tolist() == [False, True]
    envs.close()


class Killer(BaseCallback):
    """Kills a worker now and then."""

    def __init__(self, envs: Any, every: int) -> None:
        super().__init__()
        self._envs, self._every = envs, every
        self.kills = 0

    def _on_step(self) -> bool:
        if self.n_calls % self._every == 0:
            kill_worker(self._envs, self.kills % 2)
            self.kills += 1
        return True


def test_training_goes_on_over_deaths() -> None:
    envs = rebuilding(worlds(4), num_workers=2)
    model = PPO("MlpPolicy", VecNormalize(VecMonitor(envs)), n_steps=16, batch_size=32, seed=1)
    killer = Killer(envs, every=20)
    model.learn(320, callback=killer)
    assert model.num_timesteps == 320
    assert killer.kills == 4
    # The last death may not have been noticed when training ended.
    assert envs.stats()["restarts"] in (6, 8)
    # Each loss is the end of an episode for whoever counts them.
    assert len(model.ep_info_buffer) == envs.stats()["restarts"]
    assert all(np.isfinite(value.numpy()).all() for value in model.policy.state_dict().values())
    envs.close()


def test_what_cannot_travel_is_still_told() -> None:
    envs = SubprocVecEnv([Awkward])
    envs.reset()
    with pytest.raises(EnvRaised, match="Unsendable"):
        step(envs)
    envs.close()


class Awkward(Long):
    def step(self, action: Any) -> Any:
        class Unsendable(Exception):
            def __reduce__(self) -> Any:
                raise TypeError("stays here")

        raise Unsendable("as it is")


# --- nothing is left behind ----------------------------------------------------------------------

TRAINS = """
from shoal.vector.sb3 import SubprocVecEnv
from stable_baselines3 import A2C
import gymnasium
import torch

torch.set_num_threads(1)
envs = SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * 4, num_workers=2)
model = A2C("MlpPolicy", envs, device="cpu")
model.learn(20)
print("learning", flush=True)
{then}
"""


@pytest.mark.parametrize(
    ("number", "group"), [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGKILL, False)]
)
def test_an_interrupted_training_leaves_no_process(
    number: signal.Signals, group: bool, tmp_path: Path
) -> None:
    with Program(TRAINS.format(then="model.learn(10**9)"), tmp_path) as program:
        program.wait_for("learning")
        assert len(program.processes()) > 2
        program.kill(number, group=group)
        program.process.wait(timeout=60)
        assert program.process.returncode == -number
        assert program.left_after(within_s=30.0) == []
        if number == signal.SIGINT:
            assert program.errors.count("KeyboardInterrupt") == 1
            assert program.errors.count("Traceback") == 1


@pytest.mark.parametrize("then", ["envs.close(); envs.close()", "del model, envs", ""])
def test_a_program_without_a_main_guard_ends_and_leaves_no_process(
    then: str, tmp_path: Path
) -> None:
    with Program(TRAINS.format(then=then), tmp_path) as program:
        program.output()
        assert program.errors == ""
        assert program.left_after(within_s=30.0) == []


def test_a_worker_that_is_stopped_from_outside_is_replaced() -> None:
    """As the system does it when memory runs out."""
    envs = rebuilding(worlds(2), num_workers=1)
    envs.seed(0)
    envs.reset()
    (pid,) = {worker.pid for worker in envs._pool.workers}
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert step(envs)[2].tolist() == [True, True]
    assert envs.env_method("render") == [None, None]
    envs.close()
