"""A worker dies while a policy collects: is what was lost kept out of what is learnt from?"""

from __future__ import annotations

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

HORIZON = 12


class Counter(gymnasium.Env[Any, Any]):
    """Episodes of 5 steps; what is seen is how many have been taken, and each earns 1."""

    observation_space = gymnasium.spaces.Box(0.0, 5.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        return self.see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.see(), 1.0, self.count == 5, False, {}

    def see(self) -> Any:
        return np.array([self.count], np.float32)


@pytest.fixture(params=[False, True], ids=["together", "in turns"])
def source(request: pytest.FixtureRequest) -> Any:
    """Of four environments, two in each of two workers."""
    envs = shoal.make(
        Counter,
        4,
        backend="process",
        num_workers=2,
        autoreset="same_step",
        on_failure="restart",
        copy=False,
    )
    with envs:
        spaces = envs.single_observation_space, envs.single_action_space
        agent = Agent(*spaces, NetworkConfig(hidden_sizes=(4,)), None)
        yield Collector(
            envs,
            Alone(agent, envs),
            horizon=HORIZON,
            seed=1,
            goal=Goal(episodes=100),
            overlap=request.param,
        )


def test_a_step_in_which_an_environment_was_lost_is_not_valid(source: Collector) -> None:
    assert source.collect().valid.all()
    kill_worker(source.envs, 0)
    rollout = source.collect()
    lost, calm = [0, 1], [2, 3]
    assert rollout.valid[:, calm].all()
    assert (~rollout.valid[:, lost]).sum(0).tolist() == [1, 1]
    for env_id in lost:
        (t,) = np.flatnonzero(~rollout.valid[:, env_id])
        assert rollout.truncations[t, env_id]
        assert not rollout.terminations[t, env_id]
        assert rollout.rewards[t, env_id] == 0.0
        assert rollout.starts[t + 1, env_id]
        assert rollout.observations[0][t + 1, env_id, 0] == 0.0
    assert rollout.metrics()["engine/restarts"] >= 1.0


def test_an_episode_that_was_lost_is_counted_and_says_nothing(source: Collector) -> None:
    source.collect()
    assert source.episodes.num_ended == 4 * 2
    kill_worker(source.envs, 0)  # two steps into their third episodes
    told = source.collect().metrics()
    assert told["episode/return_mean"] == 5.0
    assert told["episode/length_mean"] == 5.0
    whole = 2 * (2 * HORIZON // 5) + 2 * (2 + (HORIZON - 1) // 5)
    assert told["run/episodes"] == whole + 2
    assert source.collect().valid.all()
