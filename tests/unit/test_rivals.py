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
from shoal.measure.rivals import contestants, find
from shoal.measure.session import Kind

NUM_ENVS = 4
TAKEN = multiprocessing.RawArray(ctypes.c_long, NUM_ENVS)
"""Steps of each environment, in memory that forked workers share."""
TOGETHER = multiprocessing.Lock()
"""For environments that cannot be told apart, and count in one place."""


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


def forking(kind: Kind) -> list[Contestant]:
    """Rivals whose workers share this process's memory; in Shoal they do not."""
    everyone = [one for one in contestants() if one.family == "rival" and not one.only_starts]
    return [one for one in everyone if kind in one.plays]


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("contestant", forking("one"), ids=lambda one: one.name)
def test_a_rival_counts_the_steps_that_were_taken(contestant: Contestant) -> None:
    check_count(contestant, [partial(Tallied, number) for number in range(NUM_ENVS)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("contestant", forking("team"), ids=lambda one: one.name)
def test_a_rival_counts_the_steps_that_teams_have_taken(contestant: Contestant) -> None:
    check_count(contestant, [tallied_team] * NUM_ENVS)


@pytest.mark.parametrize("contestant", forking("turns"), ids=lambda one: one.name)
def test_a_rival_counts_the_turns_that_were_taken(contestant: Contestant) -> None:
    check_count(contestant, [tallied_turns] * NUM_ENVS)


def count_together() -> None:
    with TOGETHER:
        TAKEN[0] += 1


def tallied_team() -> Any:
    from players import Meadow

    class TalliedTeam(Meadow):
        """All are there from the start, and end together, as SuperSuit wants it."""

        def __init__(self) -> None:
            super().__init__()
            self.possible_agents = ["ann", "bob"]

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed, options)
            self.agents, self.time = ["ann", "bob"], 0
            return self._seen(), {name: {} for name in self.agents}

        def step(self, actions: Any) -> Any:
            count_together()
            self.time += 1
            seen, is_over = self._seen(), self.time == 5
            told = [dict.fromkeys(self.agents, one) for one in (1.0, is_over, False)]
            infos: dict[str, Any] = {name: {} for name in self.agents}
            self.agents = [] if is_over else self.agents
            return seen, *told, infos

    return TalliedTeam()


def tallied_turns() -> Any:
    from players import Round

    class TalliedTurns(Round):
        def step(self, action: Any) -> None:
            count_together()
            super().step(action)

    return TalliedTurns()


def check_count(contestant: Contestant, factories: list[Any]) -> None:
    if contestant.needs and find_spec(contestant.needs) is None:
        pytest.skip(f"{contestant.needs} is not installed")
    course = Course("tallied", factories, len(set(factories)) > 1, 2)
    session = contestant.open(course)
    session.reset()
    actions = [session.prepare(one) for one in sample_actions(session.action_space, NUM_ENVS)]
    TAKEN[:] = [0] * NUM_ENVS
    counted = sum(map(session.step, actions))
    still_out = NUM_ENVS // 2 if contestant.name.endswith("first-ready") else 0
    assert 0 <= sum(TAKEN) - counted <= still_out
    session.close()


@pytest.mark.parametrize(
    ("num_envs", "cores", "expected"),
    [(64, 2, [1, 2]), (64, 16, [8, 16]), (60, 16, [15]), (8, 16, [8]), (7, 4, [1]), (8, 1, [1])],
)
def test_pufferlib_is_tried_with_the_most_workers_that_divide(
    num_envs: int, cores: int, expected: list[int]
) -> None:
    assert list(find("pufferlib mp").workers(num_envs, cores)) == expected
