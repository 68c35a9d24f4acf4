"""Environments go on, in another pool, exactly where others stood."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import Make
from shoal.rollout import standing
from shoal.testing import CountingWorld

NUM_ENVS = 4


def worlds(**kwargs: Any) -> list[Any]:
    return [partial(CountingWorld, tag, history=False, **kwargs) for tag in range(NUM_ENVS)]


def walk(envs: shoal.VectorEnv, rng: np.random.Generator, num_steps: int) -> list[Any]:
    """What some steps with random actions came to."""
    told = []
    for _ in range(num_steps):
        results = envs.step(rng.integers(0, 5, NUM_ENVS))
        told.append([np.copy(one) for one in results[:4]])
    return told


def assert_alike(first: list[Any], other: list[Any]) -> None:
    for one, two in zip(first, other, strict=True):
        for mine, theirs in zip(one, two, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("num_steps", [0, 1, 7, 70])
def test_others_go_on_as_if_they_were_the_same(make: Make, mode: str, num_steps: int) -> None:
    if mode == "disabled":
        pytest.skip("episodes end here, and nobody resets them")
    envs = make(worlds(), autoreset=mode)
    envs.reset(seed=3)
    walk(envs, np.random.default_rng(0), num_steps)
    mementos = envs.mementos()
    others = make(worlds(), autoreset=mode)
    assert others.go_on(mementos) == []
    rngs = [np.random.default_rng(1) for _ in range(2)]
    assert_alike(walk(envs, rngs[0], 60), walk(others, rngs[1], 60))


def test_who_has_gone_on_can_be_gone_on_from(make: Make) -> None:
    envs = make(worlds(), autoreset="same_step")
    envs.reset(seed=3)
    walk(envs, np.random.default_rng(0), 11)
    others = make(worlds(), autoreset="same_step")
    others.go_on(envs.mementos())
    walk(envs, np.random.default_rng(2), 13)
    walk(others, np.random.default_rng(2), 13)
    third = make(worlds(), autoreset="same_step")
    assert third.go_on(others.mementos()) == []
    rngs = [np.random.default_rng(1) for _ in range(2)]
    assert_alike(walk(envs, rngs[0], 30), walk(third, rngs[1], 30))


def test_arrays_and_json_hold_all_of_it(make: Make) -> None:
    import json

    envs = make(worlds(), autoreset="same_step")
    envs.set_attr("bonus", [0.5, 0.0, 0.25, 0.0])
    envs.reset(seed=3, options=[{"task": 1}, None, None, {"task": 2}])
    walk(envs, np.random.default_rng(0), 2)
    envs.set_next_reset([1], seeds=[99])
    arrays, about = standing.pack(envs.mementos())
    mementos = standing.unpack(arrays, json.loads(json.dumps(about)))
    others = make(worlds(), autoreset="same_step")
    assert others.go_on(mementos) == []
    rngs = [np.random.default_rng(1) for _ in range(2)]
    assert_alike(walk(envs, rngs[0], 40), walk(others, rngs[1], 40))
    assert others.get_attr("bonus") == (0.5, 0.0, 0.25, 0.0)


class Forgetful(CountingWorld):
    """Its observations depend on when it was made."""

    made = 0

    def __init__(self, tag: int) -> None:
        type(self).made += 1
        super().__init__(tag + 10 * type(self).made, history=False)


def test_one_that_does_not_get_there_reports_a_lost_episode() -> None:
    with shoal.make([partial(Forgetful, 0)], backend="serial", autoreset="same_step") as envs:
        envs.reset(seed=0)
        envs.step(np.array([1]))
        mementos = envs.mementos()
        with shoal.make([partial(Forgetful, 0)], backend="serial", autoreset="same_step") as others:
            assert others.go_on(mementos) == [0]
            _, rewards, _, truncations, infos = others.step(np.array([1]))
            assert truncations.all()
            assert rewards[0] == 0.0
            assert infos["restarted"][0]
            _, _, _, truncations, infos = others.step(np.array([1]))
            assert "restarted" not in infos


def test_going_on_needs_as_many_that_were_never_reset() -> None:
    with shoal.make(CountingWorld, 2, backend="serial") as envs:
        envs.reset(seed=0)
        mementos = envs.mementos()
        with pytest.raises(shoal.ContractError, match="must not have been reset"):
            envs.go_on(mementos)
        with shoal.make(CountingWorld, 3, backend="serial") as others:
            with pytest.raises(shoal.ContractError, match="here are 3"):
                others.go_on(mementos)


def test_what_json_cannot_hold_ends_the_episode(caplog: pytest.LogCaptureFixture) -> None:
    with shoal.make(CountingWorld, 1, backend="serial") as envs:
        envs.reset(seed=0, options={"task": 1, "odd": object()})
        _, about = standing.pack(envs.mementos())
    assert about[0]["episode"] is None
    assert "cannot be kept in a checkpoint" in caplog.text


def test_a_worker_that_dies_afterwards_is_replayed_as_ever(make: Make) -> None:
    import os
    import signal

    envs = make(worlds(), autoreset="same_step")
    if envs.stats()["backend"] != "process":
        pytest.skip("nobody to kill")
    envs.reset(seed=3)
    walk(envs, np.random.default_rng(0), 9)
    others = make(worlds(), autoreset="same_step", on_failure="replay")
    others.go_on(envs.mementos())
    os.kill(others._pool.workers[0].pid, signal.SIGKILL)
    rngs = [np.random.default_rng(1) for _ in range(2)]
    assert_alike(walk(envs, rngs[0], 30), walk(others, rngs[1], 30))
    assert others.stats()["replays"] > 0
