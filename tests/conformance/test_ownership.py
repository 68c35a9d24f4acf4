"""Whose arrays they are: copies stay, views stay for one further step."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from conftest import Make
from shoal.testing import CountingWorld
from trace_of import assert_same, run

NUM_ENVS = 5


def worlds(**kwargs: Any) -> list[Any]:
    return [functools.partial(CountingWorld, tag, **kwargs) for tag in range(NUM_ENVS)]


def snapshot(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: snapshot(one) for key, one in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("obs", ["vector", "dict"])
def test_with_copy_what_you_got_is_yours(make: Make, obs: str) -> None:
    envs = make(worlds(obs=obs, reuse_buffer=True), autoreset="same_step")
    trace = run(envs, 40)
    assert_same(trace, [tuple(map(snapshot, one)) for one in trace])
    again = make(worlds(obs=obs), autoreset="same_step")
    assert_same(trace, run(again, 40))


def test_with_copy_writing_into_what_you_got_changes_nothing(make: Make) -> None:
    envs, other = make(worlds()), make(worlds())
    observations, _ = envs.reset(seed=1)
    other.reset(seed=1)
    observations[:] = -1
    for _ in range(10):
        got = envs.step(np.ones(NUM_ENVS, dtype=np.int64))
        assert_same(got, other.step(np.ones(NUM_ENVS, dtype=np.int64)))
        for array in got[:4]:
            array[:] = 0


def test_without_copy_views_stay_valid_for_one_further_step(make: Make) -> None:
    envs = make(worlds(obs="dict"), autoreset="same_step", copy=False)
    actions = np.ones(NUM_ENVS, dtype=np.int64)
    last, _ = envs.reset(seed=0)
    kept = snapshot(last)
    for _ in range(40):
        results = envs.step(actions)
        assert_same(last, kept)
        last, kept = results[0], snapshot(results[0])


def test_without_copy_resizing_changes_no_view(make: Make) -> None:
    envs = make([functools.partial(CountingWorld, tag) for tag in range(2 * NUM_ENVS)], copy=False)
    envs.resize(NUM_ENVS)
    envs.reset(seed=0)
    actions = np.ones(NUM_ENVS, dtype=np.int64)
    views = [envs.step(actions)[0] for _ in range(3)][1:]
    kept = snapshot(views[0][:-1]), snapshot(views[1])
    envs.send(actions[-1:], [NUM_ENVS - 1])
    envs.recv(1)
    envs.resize(NUM_ENVS + 1)
    assert_same((views[0][:-1], views[1]), kept)


def test_without_copy_the_batches_are_the_same(make: Make, mode: str) -> None:
    with_views = make(worlds(obs="dict", infos="numeric"), autoreset=mode, copy=False)
    with_copies = make(worlds(obs="dict", infos="numeric"), autoreset=mode)
    for envs in (with_views, with_copies):
        envs.reset(seed=5)
    for _ in range(60):
        actions = np.ones(NUM_ENVS, dtype=np.int64)
        got, expected = with_views.step(actions), with_copies.step(actions)
        assert_same(got, expected)
        ended = expected[2] | expected[3]
        if mode == "disabled" and ended.any():
            options = {"reset_mask": ended}
            assert_same(with_views.reset(options=options), with_copies.reset(options=options))


def test_without_copy_a_view_is_really_a_view(make: Make) -> None:
    envs = make(worlds(), copy=False)
    first, _ = envs.reset(seed=0)
    envs.step(np.ones(NUM_ENVS, dtype=np.int64))
    third = envs.step(np.ones(NUM_ENVS, dtype=np.int64))[0]
    assert np.shares_memory(first, third)


def test_actions_kept_by_an_environment_do_not_change_under_it(make: Make) -> None:
    class Hoarder(CountingWorld):
        def step(self, action: Any) -> Any:
            self.kept = [*getattr(self, "kept", []), action]
            return super().step(action)

    envs = make([functools.partial(Hoarder, tag, action="box") for tag in range(NUM_ENVS)])
    envs.reset(seed=0)
    given = [envs.action_space.sample() for _ in range(3)]
    for actions in given:
        envs.step(actions)
    for env_id, kept in enumerate(envs.get_attr("kept")):
        assert_same(kept, [actions[env_id] for actions in given])
