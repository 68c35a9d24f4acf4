"""Is something learnt in the time that `make train` takes?"""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.gameboy_learning import by_chance, trained


@pytest.mark.slow
def test_100_000_steps_of_two_environments_take_the_key_in_most_episodes() -> None:
    """The same seed gives the same weights, so this is no matter of luck."""
    learnt, chance = trained(num_envs=2, seed=0), by_chance(0)
    assert chance.shares["key"] < 0.2
    assert learnt.shares["key"] > 0.5
    assert learnt.episode_return > 2 * chance.episode_return
