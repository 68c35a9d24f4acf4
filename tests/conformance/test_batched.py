"""A vector environment inside each worker counts as several environments."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from conftest import Make, Setting
from shoal import ConfigError, ContractError
from shoal.testing import CountingWorld
from shoal.vector.make import as_mode
from trace_of import assert_same, count_episodes, run

WIDTH = 2


def batched(mode: str, **kwargs: Any) -> Any:
    return lambda: gymnasium.vector.SyncVectorEnv(
        [functools.partial(CountingWorld, 0, **kwargs) for _ in range(WIDTH)],
        autoreset_mode=as_mode(mode),
    )


@pytest.mark.parametrize("obs", ["vector", "dict", "mixed"])
def test_it_gives_the_trace_of_its_environments_alone(make: Make, mode: str, obs: str) -> None:
    kwargs: dict[str, Any] = {"obs": obs, "infos": "mixed"}
    num_envs = 6
    with shoal.make(
        functools.partial(CountingWorld, 0, **kwargs), num_envs, backend="serial", autoreset=mode
    ) as alone:
        expected = run(alone, 120, mode=mode)
    together = make(batched(mode, **kwargs), num_envs, autoreset=mode)
    assert_same(run(together, 120, mode=mode), expected)
    assert together.stats()["episodes"] > 20


def test_episodes_are_counted_for_each_of_its_environments(make: Make, mode: str) -> None:
    envs = make(batched(mode), 6, autoreset=mode)
    envs.reset(seed=0)
    expected = count_episodes(envs, 80, mode)
    stats = envs.stats()
    assert stats["episodes"] == len(expected) > 20
    got = list(zip(stats["episode_returns"], stats["episode_lengths"], strict=True))
    assert got == expected[-100:]


def test_calls_attributes_and_frames_are_of_single_environments(make: Make) -> None:
    envs = make(batched("next_step", render_mode="rgb_array"), 6)
    envs.reset(seed=0)
    envs.set_attr("tag", [0, 1, 2, 3, 4, 5])
    assert envs.get_attr("tag") == (0, 1, 2, 3, 4, 5)
    assert envs.call("echo", 1, env_ids=[4]) == ((4, (1,), {}),)
    assert [frame[0, 0, 2] for frame in envs.render()] == [0, 1, 2, 3, 4, 5]


def test_a_number_that_does_not_divide_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="counts as 2 environments, and num_envs=5"):
        make(batched("next_step"), 5)


def test_more_workers_than_vector_environments_are_refused_if_asked_for(setting: Setting) -> None:
    if setting.num_workers < 2:
        pytest.skip("one worker is never too many")
    with pytest.raises(ConfigError, match="Ask for num_workers=1 at most"):
        shoal.make(
            batched("next_step"), 2, backend=setting.backend, num_workers=setting.num_workers
        )


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_workers_nobody_asked_for_are_as_many_as_fit(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.vector.make.usable_cores", lambda: 4)
    with shoal.make(batched("next_step"), 4, backend=backend) as envs:
        assert envs.stats()["num_workers"] == 2


def test_its_autoreset_must_be_the_pools(make: Make) -> None:
    with pytest.raises(ConfigError, match="resets in mode"):
        make(batched("same_step"), 6, autoreset="next_step")


def test_half_of_it_cannot_be_sent(make: Make) -> None:
    envs = make(batched("same_step"), 6, autoreset="same_step")
    envs.reset(seed=0)
    with pytest.raises(ContractError, match="step together"):
        envs.send(np.array([1]), env_ids=[0])
    envs.send(np.array([1, 1]), env_ids=[2, 3])
    assert envs.recv().env_ids.tolist() == [2, 3]


def test_batches_smaller_than_what_is_sent_do_not_take_it_apart(make: Make) -> None:
    envs = make(batched("same_step"), 6, autoreset="same_step", batch_size=2)
    envs.reset(seed=0)
    envs.send(np.ones(6, dtype=np.int64))
    for _ in range(60):
        ids = envs.recv().env_ids
        assert (ids[::2] % 2 == 0).all()
        assert (ids[1::2] == ids[::2] + 1).all()
        envs.send(np.ones(len(ids), dtype=np.int64), ids)


def test_a_native_vector_environment_works(make: Make) -> None:
    def native() -> Any:
        return gymnasium.make_vec(
            "CartPole-v1", num_envs=WIDTH, vectorization_mode="vector_entry_point"
        )

    envs = make(native, 6)
    envs.reset(seed=3)
    for _ in range(60):
        observations, *_ = envs.step(envs.action_space.sample())
    assert observations.shape == (6, 4)
    assert envs.stats()["episodes"] > 0


def test_a_call_reaches_it_once_not_once_per_row(make: Make) -> None:
    class Counter(gymnasium.vector.SyncVectorEnv):
        def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
            self.calls = getattr(self, "calls", 0) + 1
            return (self.calls,) * self.num_envs

    envs = make(lambda: Counter([CountingWorld] * WIDTH), 6)
    assert envs.call("anything") == (1,) * 6
    assert envs.call("anything", env_ids=[1]) == (2,)


def test_in_a_list_of_factories_it_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match="makes a vector environment of 2"):
        make([batched("next_step")] * 6)


def test_wrong_counts_from_it_are_an_error(make: Make) -> None:
    class Short(gymnasium.vector.SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            observations, rewards, *rest = super().step(actions)
            return observations, rewards[:1], *rest

    envs = make(lambda: Short([CountingWorld] * WIDTH), 6)
    envs.reset(seed=0)
    with pytest.raises(ContractError, match=r"rewards have shape \(1,\); expected \(2,\)"):
        envs.step(np.zeros(6, dtype=np.int64))


def test_infos_without_masks_are_those_of_all(make: Make) -> None:
    class Bare(gymnasium.vector.SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            return (*super().step(actions)[:4], {"height": np.arange(WIDTH) / 2})

    envs = make(lambda: Bare([CountingWorld] * WIDTH), 6)
    envs.reset(seed=0)
    infos = envs.step(np.zeros(6, dtype=np.int64))[4]
    assert infos["height"].tolist() == [0.0, 0.5] * 3
    assert infos["_height"].all()
