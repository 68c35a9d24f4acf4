"""Is something learnt in the time that `make train` takes?"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from benchmarks.gameboy_learning import by_chance, trained

SEEDS = (0, 1, 2)


@pytest.mark.slow
def test_100_000_steps_of_two_environments_take_the_key_in_most_episodes() -> None:
    """On average: seeds differ. On any of them it is more than by chance."""
    chance = by_chance(0)
    assert chance.shares["key"] < 0.15
    learnt = [trained(num_envs=2, seed=seed).drawn for seed in SEEDS]
    keys = [score.shares["key"] for score in learnt]
    assert np.mean(keys) > 0.5
    assert min(keys) > 3 * chance.shares["key"]
    for score in learnt:
        assert score.episode_return > 2 * chance.episode_return


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ram", "screen"])
def test_100_000_steps_by_novelty_alone_explore_more_rooms_than_chance(kind: str) -> None:
    chance = by_chance(0).rooms
    rooms = [trained(num_envs=2, seed=seed, novelty=kind).drawn.rooms for seed in SEEDS]
    assert np.mean(rooms) > 1.5 * chance
    assert min(rooms) > 1.2 * chance
