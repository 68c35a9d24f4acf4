"""How fast one environment would be: is it measured for a moment, and as the run would train?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shoal  # noqa: E402
from shoal.training.calibrate import one_env_steps_per_s  # noqa: E402
from shoal.training.config import PPORun  # noqa: E402
from shoal.training.settings import override  # noqa: E402


class Watched(gymnasium.Env[Any, Any]):
    """Notes under how many threads it was stepped, and how often after each reset."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    threads: list[int] = []  # noqa: RUF012
    lengths: list[int] = []  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.lengths.append(0)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.threads.append(torch.get_num_threads())
        self.lengths[-1] += 1
        return np.zeros(1, np.float32), 1.0, False, False, {}


class Counting(nn.Module):
    """Notes how many observations it was called with."""

    sizes: list[int] = []  # noqa: RUF012

    def __init__(self, space: Any, num_parameters: int) -> None:
        super().__init__()
        self.layer = nn.Linear(1, num_parameters + 1)

    def forward(self, observation: Any) -> Any:
        self.sizes.append(len(observation))
        out = self.layer(observation)
        return out[:, :-1], out[:, -1]


def measure(seconds: float, **settings: Any) -> float:
    Watched.threads.clear()
    Watched.lengths.clear()
    Counting.sizes.clear()
    config = override(PPORun(), device="cpu", backend="serial", **settings)
    return one_env_steps_per_s(config, Watched, Counting, seconds)


def test_it_is_over_when_its_time_is() -> None:
    assert measure(0.0, n_envs=4, n_steps=2048) > 0.0
    assert Watched.lengths == [1], "no more than a step, since there was no time"


def test_it_never_collects_more_at_a_time_than_the_run_does() -> None:
    measure(0.5, n_envs=4, n_steps=4, batch_size=8)
    assert Watched.lengths[:4] == [1, 2, 4, 4]
    assert set(Watched.lengths[2:]) == {4}


@pytest.mark.parametrize(("n_steps", "gradient"), [(2048, 64), (16, 64), (8, 32), (1, 4)])
def test_gradients_are_of_as_many_steps_as_in_the_run(n_steps: int, gradient: int) -> None:
    measure(0.0, n_envs=4, n_steps=n_steps, batch_size=64, n_epochs=3)
    sizes = [size for size in Counting.sizes if size > 2]  # one acts, and one or two try it out
    assert sizes == [gradient] * 3


@pytest.mark.parametrize("num_threads", [1, 2])
def test_it_computes_with_the_threads_of_the_run(num_threads: int) -> None:
    measure(0.0, n_envs=4, num_threads=num_threads)
    assert set(Watched.threads) == {num_threads}


@pytest.mark.parametrize(
    "settings",
    [
        {"n_steps": 1},
        {"backend": "process", "step_timeout_s": 30.0},
        {"memory": "gru", "normalize_rewards": True, "normalize_observations": True},
    ],
)
def test_where_a_run_trains_it_measures(settings: dict[str, Any], tmp_path: Path) -> None:
    short = {"n_envs": 4, "n_steps": 16, "n_epochs": 1, "backend": "serial", "total_steps": 64}
    done = shoal.train(
        "ppo",
        env="CartPole-v1",
        run_dir=tmp_path,
        shows=False,
        eval_episodes=1,
        device="cpu",
        **{**short, **settings},
    )
    assert done.summary["one_env_steps_per_s"] > 0.0
