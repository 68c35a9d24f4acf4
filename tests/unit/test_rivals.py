"""Does every rival count the steps that its environments really took? Those installed, that is."""

from __future__ import annotations

import ctypes
import multiprocessing
from functools import partial
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np
import pytest

from shoal.measure import Contestant, Course, sample_actions
from shoal.measure.rivals import contestants

NUM_ENVS = 4
TAKEN = multiprocessing.RawArray(ctypes.c_long, NUM_ENVS)
"""Steps of each environment, in memory that forked workers share."""


class Tallied(gymnasium.Env[Any, Any]):
    """Ends after a few steps, some by termination, others by truncation."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, number: int) -> None:
        self.number, self.length, self.age = number, 2 + number, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.age < self.length, "stepped on after its end"
        self.age += 1
        TAKEN[self.number] += 1
        ended, by_time = self.age == self.length, bool(self.number % 2)
        return np.zeros(1, np.float32), 0.0, ended and not by_time, ended and by_time, {}


def forks(contestant: Contestant) -> bool:
    """Whether its workers share this process's memory; in Shoal they do not."""
    return contestant.family == "rival" and not contestant.only_starts


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("contestant", [*filter(forks, contestants())], ids=lambda one: one.name)
def test_a_rival_counts_the_steps_that_were_taken(contestant: Contestant) -> None:
    if contestant.needs and find_spec(contestant.needs) is None:
        pytest.skip(f"{contestant.needs} is not installed")
    course = Course("tallied", [partial(Tallied, number) for number in range(NUM_ENVS)], True, 2)
    session = contestant.open(course)
    session.reset()
    actions = [session.prepare(one) for one in sample_actions(session.action_space, NUM_ENVS)]
    TAKEN[:] = [0] * NUM_ENVS
    counted = sum(map(session.step, actions))
    still_out = NUM_ENVS // 2 if contestant.name.endswith("first-ready") else 0
    assert 0 <= sum(TAKEN) - counted <= still_out
    session.close()
