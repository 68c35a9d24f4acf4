"""Do environments that branch go on from the exact state of another one?"""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import Make, Setting
from shoal import ContractError, Faults
from shoal.testing import CountingWorld
from trace_of import assert_same

NUM_ENVS, ORIGIN, TARGETS = 6, 1, [0, 4, 5]


def world() -> CountingWorld:
    return CountingWorld(history=False)


def draw(envs: Any, step: int, *, alike: bool) -> Any:
    actions = (np.arange(NUM_ENVS) * 5 + step * 3) % envs.single_action_space.n
    if alike:
        actions[TARGETS] = actions[ORIGIN]
    return actions


def assert_alike(results: Any) -> None:
    for part in results[:4]:
        for target in TARGETS:
            assert_same(part[target : target + 1], part[ORIGIN : ORIGIN + 1])


@pytest.mark.parametrize("env", [world, "CartPole-v1"], ids=["counting", "CartPole"])
def test_branches_go_on_as_their_origin_does(make: Make, env: Any) -> None:
    envs = make(env, NUM_ENVS, autoreset="same_step")
    envs.reset(seed=1)
    for step in range(25):
        envs.step(draw(envs, step, alike=False))
    others = [i for i in range(NUM_ENVS) if i not in TARGETS]
    calm = make(env, NUM_ENVS, autoreset="same_step", backend="serial")
    calm.reset(seed=1)
    for step in range(25):
        calm.step(draw(envs, step, alike=False))
    envs.branch(ORIGIN, TARGETS)
    for step in range(25, 90):
        results = envs.step(draw(envs, step, alike=True))
        assert_alike(results)
        expected = calm.step(draw(envs, step, alike=True))
        assert_same([part[others] for part in results[:4]], [part[others] for part in expected[:4]])


def test_a_branch_may_branch_again_and_be_sent(make: Make) -> None:
    envs = make(world, 3)
    envs.reset(seed=4)
    envs.step(np.array([1, 2, 3]))
    envs.branch(0, [1])
    envs.step(np.array([2, 2, 1]))
    envs.branch(1, [2])
    envs.send(np.array([4, 4, 4]))
    batch = envs.recv()
    assert_same(batch.observations[1], batch.observations[0])
    assert_same(batch.observations[2], batch.observations[0])


def test_what_has_branched_can_be_replayed(setting: Setting) -> None:
    if setting.backend != "process":
        pytest.skip("only processes can be lost")
    where = {"backend": "process", "num_workers": setting.num_workers, "on_failure": "replay"}
    with shoal.make(world, NUM_ENVS, autoreset="same_step", **where) as envs:
        envs.reset(seed=1)
        for step in range(9):
            envs.step(draw(envs, step, alike=False))
        envs.branch(ORIGIN, TARGETS)
        for step in range(9, 40):
            if step % 5 == 0:
                os.kill(envs._pool.workers[-1].pid, signal.SIGKILL)
            results = envs.step(draw(envs, step, alike=True))
            assert_alike(results)
            assert "restarted" not in results[4]


def test_branches_have_the_attributes_of_their_origin(make: Make, setting: Setting) -> None:
    policy = {"on_failure": "replay"} if setting.backend == "process" else {}
    envs = make(world, NUM_ENVS, **policy)
    envs.reset(seed=1)
    envs.set_attr("bonus", 3.0, env_ids=TARGETS)  # which the origin has as it was built
    envs.step(draw(envs, 0, alike=False))
    envs.branch(ORIGIN, TARGETS)
    assert envs.get_attr("bonus") == (0.0,) * NUM_ENVS
    for step in (1, 2):
        results = envs.step(draw(envs, step, alike=True))
        assert_alike(results)
        assert "restarted" not in results[4]
        if setting.backend == "process":
            os.kill(envs._pool.workers[-1].pid, signal.SIGKILL)
        assert envs.get_attr("bonus") == (0.0,) * NUM_ENVS


def test_what_keeps_more_than_its_generator_cannot_branch(make: Make) -> None:
    envs = make(CountingWorld, 3)
    envs.reset(seed=0)
    for _ in range(40):
        before = envs.step(np.zeros(3, dtype=np.int64))[0]
    with pytest.raises(ContractError, match="branch: env 1 did not come to where env 0 is"):
        envs.branch(0, [1])
    observations, rewards, _, truncated, infos = envs.step(np.zeros(3, dtype=np.int64))
    assert truncated.tolist() == [False, True, False]
    assert infos["restarted"].tolist() == [False, True, False]
    assert rewards[1] == 0.0
    assert_same(observations[1], before[1])


def test_misuse_is_refused(make: Make) -> None:
    envs = make(world, 3)
    with pytest.raises(ContractError, match="no episode on record"):
        envs.branch(0, [1])
    envs.reset(seed=0)
    with pytest.raises(ContractError, match="into itself"):
        envs.branch(0, [0, 1])
    with pytest.raises(ContractError, match="different numbers from 0 to 2"):
        envs.branch(3, [1])
    short = make(world, 2, faults=Faults(replay_limit_steps=2))
    short.reset(seed=0)
    for _ in range(3):
        short.step(np.zeros(2, dtype=np.int64))
    with pytest.raises(ContractError, match="replay_limit_steps=2"):
        short.branch(0, [1])


def test_an_environment_whose_step_has_raised_cannot_be_followed(make: Make) -> None:
    class Raising(CountingWorld):
        def step(self, action: int) -> Any:
            if action == 3:
                self.np_random.random()
                raise ValueError("three")
            return super().step(action)

    envs = make(lambda: Raising(history=False), 2)
    envs.reset(seed=0)
    with pytest.raises(shoal.EnvRaised):
        envs.step(np.array([3, 0]))
    with pytest.raises(ContractError, match="env 0 has no episode on record"):
        envs.branch(0, [1])
    envs.reset(seed=0)
    envs.branch(0, [1])
    assert envs.stats()["replays"] == 1


def test_what_was_set_on_a_target_only_becomes_what_its_origin_has(make: Make) -> None:
    class Shaped(CountingWorld):
        def shape(self, value: float) -> float:
            return value

    envs = make(lambda: Shaped(history=False), 2)
    envs.reset(seed=0)
    envs.set_attr("shape", abs, env_ids=[1])
    envs.branch(0, [1])
    assert envs.call("shape", -2.0) == (-2.0, -2.0)


def test_a_target_with_an_attribute_that_its_origin_lacks_is_refused(make: Make) -> None:
    envs = make(world, 2)
    envs.reset(seed=0)
    envs.set_attr("task", 3, env_ids=[1])
    with pytest.raises(ContractError, match=r"branch: env 1 has an attribute 'task'.*Set it on"):
        envs.branch(0, [1])
    assert not envs.step(np.zeros(2, dtype=np.int64))[3].any(), "nobody is lost by that"
