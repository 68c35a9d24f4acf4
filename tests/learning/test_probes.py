"""Does it learn? Probe worlds, each of which shows one thing that may be broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from learning import worlds  # noqa: E402
from shoal.algos.networks import NetworkConfig  # noqa: E402
from shoal.algos.ppo.config import PPOConfig  # noqa: E402
from shoal.training.config import EnvConfig, GoalConfig, PPORun, RunConfig  # noqa: E402
from shoal.training.loop import Progress, learn  # noqa: E402
from shoal.training.ppo import Training, threads  # noqa: E402

QUICK = PPORun(
    envs=EnvConfig(n_envs=8, backend="serial"),
    ppo=PPOConfig(learning_rate=5e-3, n_steps=16, n_epochs=4, batch_size=32, gamma=0.9),
    network=NetworkConfig(hidden_sizes=(16,)),
    run=RunConfig(device="cpu"),
)


def trained(world: type, num_steps: int, config: PPORun = QUICK) -> Training:
    """An agent after some thousand steps."""
    config = replace(config, goal=GoalConfig(total_steps=num_steps))
    with Training(config, world) as training, threads(1, training.agent):
        learn(training.source, training.learner, Progress([]))
    return training


def value_of(training: Training, observation: Any) -> float:
    leaves = tuple(np.asarray(part)[None] for part in training.agent.layout.take_apart(observation))
    return float(training.agent.value(leaves, training.agent.initial_state(1))[0])


def number(value: float) -> Any:
    return np.array([value], dtype=np.float32)


def test_the_value_of_a_constant_reward() -> None:
    assert value_of(trained(worlds.Constant, 4000), number(0.0)) == pytest.approx(1.0, abs=0.05)


def test_a_value_that_depends_on_what_is_seen() -> None:
    training = trained(worlds.Seen, 6000)
    for seen in (-1.0, 1.0):
        assert value_of(training, number(seen)) == pytest.approx(seen, abs=0.1)


def test_a_reward_that_comes_later_is_discounted() -> None:
    training = trained(worlds.Delayed, 8000)
    assert value_of(training, number(1.0)) == pytest.approx(1.0, abs=0.1)
    assert value_of(training, number(0.0)) == pytest.approx(0.9, abs=0.1)


def test_a_truncated_episode_is_bootstrapped_from_its_last_observation() -> None:
    config = replace(QUICK, ppo=replace(QUICK.ppo, learning_rate=2e-2, n_epochs=8))
    training = trained(worlds.Endless, 20_000, config)
    for seen in (-1.0, 1.0):
        # Below 3 if truncation were taken for an end, or the next episode for what follows.
        assert value_of(training, number(seen)) == pytest.approx(10.0 * seen, abs=1.0)


@pytest.mark.parametrize(
    ("world", "num_steps"),
    [
        (worlds.Chosen, 4000),
        (worlds.Fitting, 6000),
        (worlds.Switches, 8000),
        (worlds.Buttons, 8000),
        (worlds.Masked, 4000),
        (worlds.MaskedSwitches, 8000),
        (worlds.MaskSeen, 8000),
        (worlds.Described, 8000),
    ],
)
def test_the_right_action_is_found(world: type, num_steps: int) -> None:
    assert trained(world, num_steps).evaluate(20).mean == pytest.approx(1.0)


def test_what_masks_forbid_would_be_best() -> None:
    assert trained(worlds.Allowed, 4000).evaluate(20).mean == pytest.approx(2.0)


@pytest.mark.parametrize("squash", [False, True])
def test_a_continuous_action_is_found(squash: bool) -> None:
    network = replace(QUICK.network, squash_actions=squash, initial_log_std=-0.5)
    found = trained(worlds.Target, 16_000, replace(QUICK, network=network)).evaluate(20)
    assert found.mean > 0.97


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_what_was_seen_is_remembered(memory: Any) -> None:
    network = replace(QUICK.network, memory=memory, memory_size=16)
    ppo = replace(QUICK.ppo, sequence_length=8, batch_size=64)
    config = replace(QUICK, network=network, ppo=ppo)
    assert trained(worlds.Remembered, 24_000, config).evaluate(20).mean == pytest.approx(1.0)
    forgetful = trained(worlds.Remembered, 8_000)
    assert forgetful.evaluate(40).mean < 0.7, "it can be told without a memory"


def test_pictures_are_told_apart() -> None:
    config = replace(QUICK, ppo=replace(QUICK.ppo, learning_rate=1e-3, batch_size=64))
    assert trained(worlds.Picture, 1536, config).evaluate(20).mean == pytest.approx(1.0)


def test_observations_and_rewards_of_any_size_are_learnt_from_when_they_are_scaled() -> None:
    class Large(worlds.Fitting):
        observation_space = worlds.spaces.Box(-1e6, 1e6, (1,))

        def see(self, value: float) -> Any:
            return np.array([5e3 + 1e3 * value], dtype=np.float32)

        def reward(self, action: Any) -> float:
            return 1e4 * super().reward(action)

    network = replace(QUICK.network, normalize_observations=True)
    ppo = replace(QUICK.ppo, normalize_rewards=True)
    scaled = trained(Large, 8000, replace(QUICK, network=network, ppo=ppo))
    assert scaled.evaluate(20).mean == pytest.approx(1e4)
