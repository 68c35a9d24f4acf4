"""Episodes, counted by when they began."""

from __future__ import annotations

import json

import numpy as np

from shoal.rollout.episodes import Episodes


def step(episodes: Episodes, rewards: list[float], ended: list[int], lost: object = None) -> None:
    ids, places = np.arange(len(rewards)), np.array(ended, dtype=np.int64)
    episodes.add(ids, np.array(rewards), places, lost)  # type: ignore[arg-type]


def test_returns_and_lengths_are_those_of_whole_episodes() -> None:
    episodes = Episodes(2)
    step(episodes, [1.0, 10.0], [])
    step(episodes, [2.0, 20.0], [0])
    assert episodes.metrics()["episode/return"] == 3.0
    assert episodes.metrics()["episode/length"] == 2
    step(episodes, [5.0, 30.0], [0, 1])
    told = episodes.metrics()
    assert (told["episode/return"], told["episode/length"]) == (60.0, 3)
    assert told["episode/return_mean"] == (3.0 + 5.0 + 60.0) / 3
    assert told["run/episodes"] == 3


def test_some_environments_may_step_without_the_others() -> None:
    episodes = Episodes(4)
    odd = np.array([1, 3])
    episodes.add(odd, np.array([1.0, 2.0]), np.array([], np.int64), None)
    episodes.add(odd, np.array([1.0, 2.0]), np.array([1]), None)
    assert episodes.metrics()["episode/return"] == 4.0
    assert episodes.state()["lengths"] == [0, 2, 0, 0]


def test_short_episodes_are_not_favoured() -> None:
    """Env 0 has episodes of one step, env 1 one of five: the first three that *began* count."""
    episodes = Episodes(2, limit=3)
    for _ in range(4):
        step(episodes, [0.0, 0.0], [0])
        assert not episodes.is_over
    assert episodes.num_ended == 2
    step(episodes, [0.0, 7.0], [0, 1])
    assert episodes.is_over
    assert episodes.num_ended == 3
    assert episodes.metrics()["episode/return"] == 7.0


def test_a_lost_episode_is_counted_and_says_nothing() -> None:
    episodes = Episodes(2, limit=2)
    step(episodes, [1.0, 1.0], [0], np.array([True, False]))
    assert episodes.num_ended == 1
    assert "episode/return" not in episodes.metrics()


def test_what_json_holds_of_it_is_all_of_it() -> None:
    episodes = Episodes(2, limit=9)
    step(episodes, [0.1, 0.2], [1])
    step(episodes, [0.1, 0.2], [])
    other = Episodes(2, limit=9)
    other.put_state(json.loads(json.dumps(episodes.state())))
    for one in (episodes, other):
        step(one, [1.0, 1.0], [0, 1])
    assert other.state() == episodes.state()
    assert other.metrics() == episodes.metrics()


def test_a_limit_that_is_raised_counts_what_has_ended_beyond_the_old_one() -> None:
    episodes = Episodes(2, limit=2)
    for _ in range(5):
        step(episodes, [1.0, 1.0], [0])
    assert episodes.num_ended == 1, "env 1 is still in one of the first two"
    raised = Episodes(2, limit=6)
    raised.put_state(json.loads(json.dumps(episodes.state())))
    assert raised.num_ended == 5, "all but the second of those that began first"
    step(raised, [1.0, 1.0], [1])
    assert raised.is_over


def test_a_state_that_was_written_with_a_count_is_read() -> None:
    episodes = Episodes(2, limit=9)
    step(episodes, [1.0, 1.0], [1])
    other = Episodes(2, limit=9)
    other.put_state({**episodes.state(), "num_ended": 1})
    assert other.state() == episodes.state()
    assert other.num_ended == 1
