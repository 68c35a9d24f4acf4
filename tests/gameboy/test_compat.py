"""Is `ParallelEnvironment` the Game Boy environment, with a count of episodes?"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import shoal
from shoal.compat import ParallelEnvironment
from shoal.envs.gameboy import GameBoyEnv
from shoal.envs.gameboy.env import RAM_MAP, ROM
from trace_of import assert_same

ACTIONS = [5, 5, 3, 6, 1, 4, 6, 6, 2, 0] * 3


def played(env: ParallelEnvironment) -> list[Any]:
    env.initialize()
    steps: list[Any] = [env.reset_episode()]
    steps += [env.step(action) for action in ACTIONS]
    steps.append(env.get_episode_stats())
    env.close()
    return steps


def test_it_does_what_the_environment_does() -> None:
    env = GameBoyEnv(episode_length=30)
    expected: list[Any] = [env.reset(seed=7), *(env.step(action) for action in ACTIONS)]
    env.close()
    *steps, stats = played(ParallelEnvironment(7, None, 30))
    assert_same(steps, expected)
    assert stats == {
        "env_id": 7,
        "episode": 1,
        "reward": pytest.approx(sum(step[1] for step in expected[1:])),
        "length": 30,
        "done": True,
    }


def test_each_episode_is_counted_anew_and_is_another_one() -> None:
    env = ParallelEnvironment(3, episode_length=5)
    env.initialize()
    env.initialize()
    first = env.reset_episode()[1]
    env.step(5)
    second = env.reset_episode()[1]
    assert first["level"] != second["level"]
    assert env.get_episode_stats() == {
        "env_id": 3,
        "episode": 2,
        "reward": 0.0,
        "length": 0,
        "done": False,
    }
    env.close()


def test_it_begins_with_its_seed_whenever_it_is_initialised() -> None:
    env = ParallelEnvironment(3, episode_length=5)
    begun = []
    for _ in range(2):
        env.initialize()
        begun.append([env.reset_episode(), env.reset_episode()])
        env.close()
    assert_same(begun[1], begun[0])
    assert env.get_episode_stats()["episode"] == 4


def test_several_in_threads_are_as_one_after_the_other() -> None:
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(played, [ParallelEnvironment(k) for k in range(4)]))
    assert_same(together, [played(ParallelEnvironment(k)) for k in range(4)])


@pytest.mark.parametrize(("ram_map", "shape"), [(None, (4, 84, 84)), (RAM_MAP, (71,))])
def test_a_cartridge_is_seen_by_its_map_or_by_its_pictures(ram_map: Any, shape: Any) -> None:
    env = ParallelEnvironment(0, ROM, ram_map=ram_map)
    env.initialize()
    assert env.reset_episode()[0].shape == shape
    env.close()
    env.close()


def test_it_says_what_to_call_first() -> None:
    env = ParallelEnvironment(5)
    with pytest.raises(shoal.ContractError, match=r"environment 5 is not running. Call initialize"):
        env.step(0)
