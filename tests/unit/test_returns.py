"""GAE against a slow transcription of its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.layout import Array
from shoal.rollout.returns import gae, next_values_of


def slow_gae(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminations: Array,
    truncations: Array,
    valid: Array,
    gamma: float,
    gae_lambda: float,
) -> Array:
    """The sum of equation 16, term by term: every later delta, until an episode ends."""
    num_steps, num_envs = rewards.shape
    advantages = np.zeros((num_steps, num_envs))
    for env in range(num_envs):
        for t in range(num_steps):
            weight = 1.0
            for k in range(t, num_steps):
                if not valid[k, env]:
                    break
                follows = 0.0 if terminations[k, env] else gamma * next_values[k, env]
                delta = rewards[k, env] + follows - values[k, env]
                advantages[t, env] += weight * delta
                if terminations[k, env] or truncations[k, env]:
                    break
                weight *= gamma * gae_lambda
    return advantages


@given(
    num_steps=st.integers(1, 12),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    gamma=st.floats(0.0, 1.0),
    gae_lambda=st.floats(0.0, 1.0),
)
def test_gae_is_the_sum_of_later_deltas_within_the_episode(
    num_steps: int, num_envs: int, seed: int, gamma: float, gae_lambda: float
) -> None:
    rng = np.random.default_rng(seed)
    shape = (num_steps, num_envs)
    rewards, values, next_values = (rng.normal(size=shape) for _ in range(3))
    terminations, truncations = (rng.random(shape) < 0.2 for _ in range(2))
    valid = rng.random(shape) < 0.9
    given_all = rewards, values, next_values, terminations, truncations, valid
    found = gae(*given_all, gamma=gamma, gae_lambda=gae_lambda)
    assert found == pytest.approx(slow_gae(*given_all, gamma, gae_lambda), abs=1e-9)


def test_a_lost_step_has_no_advantage_and_the_one_before_it_is_bootstrapped() -> None:
    one = np.ones((3, 1), dtype=np.float32)
    no = np.zeros((3, 1), dtype=np.bool_)
    valid = np.array([[True], [False], [True]])
    values = np.array([[1.0], [5.0], [2.0]], dtype=np.float32)
    following = np.array([[5.0], [7.0], [3.0]], dtype=np.float32)
    found = gae(one, values, following, no, no, valid, gamma=0.5, gae_lambda=0.9)
    assert found[:, 0].tolist() == pytest.approx([1.0 + 2.5 - 1.0, 0.0, 1.0 + 1.5 - 2.0])


def test_a_step_leads_to_the_next_row_or_to_the_last_observation() -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    ended = np.array([[True, False], [False, True]])
    found = next_values_of(values, np.array([9.0, 9.5]), np.full((2, 2), -1.0), ended)
    assert found.tolist() == [[-1.0, 4.0], [9.0, -1.0]]
