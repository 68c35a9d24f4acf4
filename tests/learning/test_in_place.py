"""Rollouts of large observations: written by workers where they are read, and the same for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shoal  # noqa: E402
from faults.recovering import kill_worker  # noqa: E402
from shoal.algos.agent import Agent  # noqa: E402
from shoal.algos.networks import NetworkConfig  # noqa: E402
from shoal.rollout.collector import Collector, Goal  # noqa: E402
from shoal.rollout.play import Alone  # noqa: E402
from shoal.rollout.rollout import Rollout  # noqa: E402

HORIZON, NUM_ENVS = 6, 5


class Noise(gymnasium.Env[Any, Any]):
    """Shows noise, which depends on all that was done; ends or is cut off now and then."""

    observation_space = gymnasium.spaces.Dict(
        picture=gymnasium.spaces.Box(0, 1, (4096,), np.float32),
        numbers=gymnasium.spaces.Box(-10, 10, (3,), np.float64),
    )
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._sum = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._sum += int(action)
        seen, chance = self._see(), self.np_random.random()
        return seen, float(self._sum), chance < 0.1, 0.1 <= chance < 0.2, {}

    def _see(self) -> dict[str, Any]:
        shown = self.np_random.random(4096, dtype=np.float32)
        return {"picture": shown, "numbers": np.full(3, self._sum + 0.1)}


@contextmanager
def collecting(
    backend: str, num_workers: int, env: type[gymnasium.Env[Any, Any]] = Noise
) -> Iterator[Collector[Any]]:
    torch.manual_seed(0)
    envs = shoal.make(
        env,
        NUM_ENVS,
        backend=backend,
        num_workers=num_workers,
        autoreset="same_step",
        on_failure="replay",
        copy=False,
    )
    with envs:
        spaces = envs.single_observation_space, envs.single_action_space
        agent = Agent(*spaces, NetworkConfig(hidden_sizes=(4,)), None)
        play = Alone(agent, envs)
        goal = Goal(steps=10**6)
        yield Collector(envs, play, horizon=HORIZON, seed=1, goal=goal)


def is_in_place(rollout: Rollout) -> bool:
    """Whether its pictures lie in rows that workers write."""
    return any(not leaf.flags.owndata and leaf.shape[-1] == 4096 for leaf in rollout.observations)


def copied(rollout: Rollout) -> list[Any]:
    arrays = (*rollout.observations, rollout.actions, rollout.rewards, rollout.next_values)
    return [array.copy() for array in arrays]


def several(source: Collector[Any], count: int = 4) -> list[list[Any]]:
    """Rollouts, each let go of before the next one is made."""
    return [copied(source.collect()) for _ in range(count)]


@pytest.fixture(scope="module")
def expected() -> list[list[Any]]:
    with collecting("serial", 1) as source:
        return several(source)


def assert_same(found: list[list[Any]], expected: list[list[Any]]) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("backend", ["process", "hybrid", "thread"])
def test_rollouts_in_place_are_those_of_the_serial_backend(
    backend: str, expected: list[list[Any]]
) -> None:
    with collecting(backend, 2) as source:
        found = []
        for _ in expected:
            rollout = source.collect()
            assert is_in_place(rollout)
            found.append(copied(rollout))
            del rollout
        assert_same(found, expected)


def test_numbers_are_kept_in_single_precision_and_so_not_in_place() -> None:
    with collecting("process", 2) as source:
        picture, numbers = source.collect().observations
        assert numbers.dtype == picture.dtype == np.float32
        assert numbers.flags.owndata
        assert not picture.flags.owndata


def test_a_rollout_that_is_held_stays_as_it_is(expected: list[list[Any]]) -> None:
    with collecting("process", 2) as source:
        kept = [source.collect() for _ in expected]
        assert [is_in_place(one) for one in kept] == [True, False, False, False]
        assert_same(list(map(copied, kept)), expected)


def test_a_worker_that_dies_in_the_middle_changes_nothing(expected: list[list[Any]]) -> None:
    with collecting("process", 2) as source:
        found = []
        for k in range(len(expected)):
            if k in (1, 3):
                kill_worker(source.envs, 0)
            found.append(copied(source.collect()))
        assert_same(found, expected)
        assert source.envs.stats()["replays"] >= 2


def test_the_loop_lets_go_of_each_rollout_before_the_next() -> None:
    from shoal.training.loop import Progress, learn

    places: list[bool] = []

    class Looking:
        def update(self, rollout: Rollout) -> dict[str, float]:
            places.append(is_in_place(rollout))
            return {}

    with collecting("process", 2) as source:
        source.goal = Goal(steps=4 * HORIZON * NUM_ENVS)
        learn(source, Looking(), Progress())
    assert places == [True] * 4


class Doubles(Noise):
    """Numbers in double precision only, and many of them."""

    observation_space = gymnasium.spaces.Box(-10, 10, (4096,), np.float64)

    def _see(self) -> Any:
        return self.np_random.random(4096)


def test_no_pages_are_made_of_what_is_not_kept_as_it_is() -> None:
    with collecting("process", 2, env=Doubles) as source:
        assert source.collect().observations[0].dtype == np.float32
        assert source.envs.pages() is None
