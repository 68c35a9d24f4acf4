"""What settings do to an update: when it ends, how far it goes, and which way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from learning import worlds  # noqa: E402
from learning.test_probes import QUICK  # noqa: E402
from shoal.training.config import GoalConfig  # noqa: E402
from shoal.training.loop import Progress, learn  # noqa: E402
from shoal.training.ppo import Training, threads  # noqa: E402

PER_UPDATE = QUICK.envs.n_envs * QUICK.ppo.n_steps


def rows(num_updates: int, world: type = worlds.Fitting, **settings: Any) -> list[dict[str, float]]:
    """What is told of each update of a short run."""
    told: list[dict[str, float]] = []
    goal = GoalConfig(total_steps=num_updates * PER_UPDATE)
    config = replace(QUICK, goal=goal, ppo=replace(QUICK.ppo, **settings))
    with Training(config, world) as training, threads(1, training.agent):
        callback = lambda run: told.append(dict(run.metrics))  # noqa: E731
        learn(training.source, training.learner, Progress([]), [callback])
    return told


def weights_after(progress: float, **settings: Any) -> Any:
    """Weights after one update, at so much of the run."""
    config = replace(QUICK, ppo=replace(QUICK.ppo, n_epochs=20, **settings))
    with Training(config, worlds.Fitting) as training, threads(1, training.agent):
        rollout = training.source.collect()
        training.learner.update(replace(rollout, progress=progress))
        return torch.cat([one.detach().flatten() for one in training.agent.parameters()])


def epochs(**settings: Any) -> list[float]:
    return [row["train/epochs"] for row in rows(3, learning_rate=2e-2, n_epochs=10, **settings)]


def test_an_update_ends_when_the_policy_has_moved_far_enough() -> None:
    assert epochs(target_kl=None) == [10, 10, 10]
    assert epochs(target_kl=1e9) == [10, 10, 10]
    assert epochs(target_kl=1e-9) == [1, 1, 1]
    assert any(1 < count < 10 for count in epochs(target_kl=0.03))


def test_a_learning_rate_falls_to_nothing_by_the_end_of_a_run() -> None:
    told = rows(4, learning_rate=1e-2, learning_rate_schedule="linear")
    assert [row["train/learning_rate"] for row in told] == pytest.approx(
        [1e-2, 0.75e-2, 0.5e-2, 0.25e-2]
    )
    told = rows(4, learning_rate=1e-2)
    assert [row["train/learning_rate"] for row in told] == [1e-2] * 4


@pytest.mark.parametrize("name", ["learning_rate", "clip_range"])
@pytest.mark.parametrize("progress", [0.0, 0.5, 0.75])
def test_what_falls_is_what_is_left_of_it(name: str, progress: float) -> None:
    """An update is the same as one with a constant of what the schedule has come to by then."""
    falling = weights_after(progress, **{name: 0.04, f"{name}_schedule": "linear"})
    assert torch.equal(falling, weights_after(progress, **{name: 0.04 * (1.0 - progress)}))
    same = torch.equal(falling, weights_after(progress, **{name: 0.04}))
    assert same == (progress == 0.0), "it makes no difference here"


def test_entropy_that_is_worth_something_keeps_a_policy_random() -> None:
    greedy, curious = (
        [row["train/entropy"] for row in rows(30, worlds.Chosen, entropy_coef=worth)]
        for worth in (0.0, 0.5)
    )
    assert greedy[-1] < 0.1
    assert curious[-1] > 3 * greedy[-1]


def test_entropy_alone_makes_a_policy_more_random() -> None:
    """Where every action earns the same, and the policy has begun with a favourite."""
    with Training(QUICK, worlds.Constant) as training, threads(1, training.agent):
        with torch.no_grad():
            last = [one for one in training.agent.parameters() if one.shape == (2,)]
            last[0][:] = torch.tensor([2.0, 0.0])
        training.learner.config = replace(QUICK.ppo, entropy_coef=1.0)
        told = [
            training.learner.update(training.source.collect())["train/entropy"] for _ in range(4)
        ]
    assert told[0] < 0.6, "of 0.69 at most"
    assert np.all(np.diff(told) > 0.0)
