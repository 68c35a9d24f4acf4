"""Reaching into environments, and what the engine knows of itself."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from conftest import Make, Setting
from shoal import ClosedError, ContractError, EnvRaised
from shoal.testing import CountingWorld
from trace_of import count_episodes

NUM_ENVS = 5


def worlds(**kwargs: Any) -> list[Any]:
    return [functools.partial(CountingWorld, tag, **kwargs) for tag in range(NUM_ENVS)]


def test_it_is_a_gymnasium_vector_environment(make: Make) -> None:
    envs = make("CartPole-v1", 3)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert envs.num_envs == 3
    assert envs.spec is not None
    assert envs.spec.id == "CartPole-v1"
    assert envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
    assert envs.metadata["render_modes"] == ["human", "rgb_array"]
    assert envs.single_action_space == gymnasium.spaces.Discrete(2)
    assert envs.action_space == gymnasium.spaces.MultiDiscrete([2, 2, 2])
    assert envs.observation_space.shape == (3, 4)
    assert not envs.closed


def test_call_gives_one_result_each(make: Make) -> None:
    envs = make(worlds())
    results = envs.call("echo", 1, "a", key=[2])
    assert results == tuple((tag, (1, "a"), {"key": [2]}) for tag in range(NUM_ENVS))
    assert envs.call("echo", env_ids=[3, 0]) == ((3, (), {}), (0, (), {}))
    assert envs.call("tag") == (0, 1, 2, 3, 4)


def test_functions_of_the_caller_can_be_arguments(make: Make) -> None:
    envs = make(worlds())
    offset = 5
    (_, (received,), _), *_ = envs.call("echo", lambda x: x + offset)
    assert received(1) == 6


def test_attributes_are_read_and_set_for_each_or_for_all(make: Make) -> None:
    envs = make(worlds())
    envs.set_attr("bonus", [0.0, 1.0, 2.0, 3.0, 4.0])
    assert envs.get_attr("bonus") == (0.0, 1.0, 2.0, 3.0, 4.0)
    envs.set_attr("bonus", 7.0, env_ids=[1, 2])
    assert envs.get_attr("bonus", env_ids=[0, 1, 2]) == (0.0, 7.0, 7.0)
    with pytest.raises(ContractError, match="Got `2` values for 5 environments"):
        envs.set_attr("bonus", [1.0, 2.0])


def test_attributes_are_found_through_wrappers(make: Make) -> None:
    envs = make("CartPole-v1", 2)
    assert envs.get_attr("gravity") == (9.8, 9.8)
    envs.set_attr("gravity", [1.0, 2.0])
    assert envs.call("gravity") == (1.0, 2.0)


def test_a_failing_call_is_an_error_and_harms_nobody(make: Make) -> None:
    envs = make(worlds())
    envs.reset(seed=0)
    with pytest.raises(EnvRaised, match="env 0 raised AttributeError in call") as caught:
        envs.call("no_such_method")
    assert caught.value.phase == "call"
    assert isinstance(caught.value.__cause__, AttributeError)
    with pytest.raises(EnvRaised, match="TypeError"):
        envs.call("record", 1, 2, 3, env_ids=[2])
    with pytest.raises(ContractError, match="use `step` directly"):
        envs.call("step", 1)
    envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
    assert [record.step for record in envs.call("record")] == [1] * NUM_ENVS


def test_generators_and_their_seeds_can_be_seen(make: Make) -> None:
    envs = make("CartPole-v1", 3)
    envs.reset(seed=42)
    assert envs.np_random_seed == (42, 43, 44)
    assert all(isinstance(one, np.random.Generator) for one in envs.np_random)
    states = [one.bit_generator.state for one in envs.np_random]
    assert states[0] != states[1]


def test_render_gives_one_frame_each(make: Make) -> None:
    envs = make(worlds(render_mode="rgb_array"))
    assert envs.render_mode == "rgb_array"
    envs.reset(seed=0)
    frames = envs.render()
    assert len(frames) == NUM_ENVS
    assert [frame[0, 0, 2] for frame in frames] == [0, 1, 2, 3, 4]


def test_wrappers_and_keyword_arguments_reach_every_environment(make: Make) -> None:
    wrappers = [
        functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=2),
        lambda env: gymnasium.wrappers.TransformReward(env, lambda reward: reward * 0 + 9),
    ]
    envs = make(CountingWorld, 3, env_kwargs={"tag": 6}, wrappers=wrappers)
    envs.reset(seed=0)
    envs.step(np.zeros(3, dtype=np.int64))
    _, rewards, _, truncated, _ = envs.step(np.zeros(3, dtype=np.int64))
    assert rewards.tolist() == [9.0] * 3
    assert truncated.all()
    assert envs.get_attr("tag") == (6, 6, 6)


def test_what_is_closed_says_so_and_closes_twice(make: Make) -> None:
    envs = make(worlds())
    envs.close()
    envs.close()
    assert envs.closed
    for use in (envs.reset, envs.recv, lambda: envs.call("tag"), lambda: envs.send(np.zeros(5))):
        with pytest.raises(ClosedError, match="closed"):
            use()


def test_close_runs_every_env_close(make: Make, tmp_path: Any) -> None:
    class Closing(CountingWorld):
        def close(self) -> None:
            (tmp_path / f"closed-{self.tag}").touch()

    envs = make([functools.partial(Closing, tag) for tag in range(NUM_ENVS)])
    envs.reset()
    envs.close()
    assert len(list(tmp_path.iterdir())) == NUM_ENVS


def test_dropping_the_last_reference_closes_too(
    make: Make, setting: Setting, tmp_path: Any
) -> None:
    class Closing(CountingWorld):
        def close(self) -> None:
            (tmp_path / f"closed-{self.tag}").touch()

    envs = shoal.make(
        [functools.partial(Closing, tag) for tag in range(3)],
        backend=setting.backend,
        num_workers=setting.num_workers,
    )
    envs.reset()
    del envs
    assert len(list(tmp_path.iterdir())) == 3


def test_the_engine_counts_episodes_by_itself(make: Make, mode: str) -> None:
    envs = make(worlds(), autoreset=mode)
    envs.reset(seed=0)
    for _ in range(2):
        envs.step(np.full(NUM_ENVS, 1))
    envs.reset(seed=0)  # what this cuts short is not counted
    expected = count_episodes(envs, 80, mode)
    stats = envs.stats()
    assert stats["episodes"] == len(expected) > 20
    got = list(zip(stats["episode_returns"], stats["episode_lengths"], strict=True))
    assert got == expected[-100:]
    assert stats["steps"] == 82 * NUM_ENVS


def test_stats_tell_where_it_runs(make: Make, setting: Setting) -> None:
    envs = make(worlds())
    envs.reset(seed=0)
    envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
    stats = envs.stats()
    assert stats["backend"] == setting.backend
    assert stats["num_workers"] == setting.num_workers == len(stats["busy_fraction"])
    assert all(0 < busy <= 1 for busy in stats["busy_fraction"])
    assert stats["rows_bytes"] > 0
    assert stats["start_s"] > 0
