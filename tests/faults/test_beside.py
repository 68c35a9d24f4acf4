"""What was done still counts, whatever fails beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest

import shoal
from faults.recovering import worlds
from shoal import ContractError, EnvRaised, WorkerDied
from shoal.testing import CountingWorld, decode
from trace_of import assert_same

BACKENDS = ["serial", "thread", "process"]


class Brief(CountingWorld):
    """Episodes of one step, and methods that fail."""

    min_steps = max_steps = 1

    def boom(self) -> None:
        raise RuntimeError("boom")

    def die(self) -> None:
        os._exit(3)


class Told(CountingWorld):
    """Is told in words what to do."""

    def __init__(self, tag: int) -> None:
        super().__init__(tag)
        self.action_space = gymnasium.spaces.Text(10)

    def step(self, action: Any) -> Any:
        self._record = self._record._replace(step=self._record.step + 1)
        return self._observation(), 0.0, False, False, {"heard": action}


def sent_beside(act: Callable[[shoal.VectorEnv], None], mode: str, **kwargs: Any) -> Any:
    """What is received of env 0, which was sent before something was done with others."""
    factories = worlds(3, Brief, obs="text", infos="mixed")
    with shoal.make(factories, num_workers=1, autoreset=mode, **kwargs) as envs:
        envs.reset(seed=0)
        envs.send([1], env_ids=[0])
        act(envs)
        return tuple(envs.recv(min_envs=1))


def boom(envs: shoal.VectorEnv) -> None:
    with pytest.raises(EnvRaised, match="boom"):
        envs.call("boom", env_ids=[1])


def die(envs: shoal.VectorEnv) -> None:
    with pytest.raises(WorkerDied):
        envs.call("die", env_ids=[1])


def nothing(envs: shoal.VectorEnv) -> None:
    pass


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_that_raises_takes_nothing_from_what_is_ready(backend: str, mode: str) -> None:
    calm = sent_beside(nothing, mode, backend="serial")
    assert_same(sent_beside(boom, mode, backend=backend), calm)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("on_failure", ["restart", "raise"])
def test_a_call_that_kills_the_worker_takes_nothing_from_what_is_ready(
    mode: str, on_failure: str
) -> None:
    calm = sent_beside(nothing, mode, backend="serial")
    assert_same(sent_beside(die, mode, backend="process", on_failure=on_failure), calm)


def test_what_waits_for_a_worker_that_a_call_kills_is_still_done() -> None:
    with shoal.make(worlds(4, Brief), backend="process", num_workers=1) as envs:
        envs.reset(seed=0)
        envs.send([0], env_ids=[0])
        envs.send([0], env_ids=[2])  # ahead
        envs.send([0], env_ids=[3])  # behind both, until the worker takes more
        die(envs)
        batch = envs.recv(min_envs=3)
        assert batch.env_ids.tolist() == [0, 2, 3]
        assert batch.infos["restarted"].tolist() == [False, False, True]
        assert [decode(row).step for row in batch.observations] == [1, 1, 0]


@pytest.fixture
def told() -> Any:
    with shoal.make(worlds(2, Told), backend="process", num_workers=2) as envs:
        envs.reset(seed=0)
        yield envs


def steps(envs: shoal.VectorEnv) -> list[int]:
    return [record.step for record in envs.call("record")]


def test_an_action_that_cannot_be_sent_is_refused_and_nothing_is_sent(told: Any) -> None:
    with pytest.raises(ContractError, match="the action of env 1 cannot be sent"):
        told.send(["go", (word for word in "ab")])
    with pytest.raises(ContractError, match="nothing was sent"):
        told.recv()
    told.send(["stop"], env_ids=[1])
    assert told.recv().infos["heard"].tolist() == ["stop"]
    assert steps(told) == [0, 1]


def test_where_one_action_cannot_be_sent_nobody_steps(told: Any) -> None:
    with pytest.raises(ContractError, match="the action of env 1 cannot be sent"):
        told.step(["go", (word for word in "ab")])
    assert steps(told) == [0, 0]
    assert told.step(["go", "stop"])[4]["heard"].tolist() == ["go", "stop"]
