"""Is the best model the best of the whole run, however often that was broken off?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import shoal  # noqa: E402
from shoal.training.checkpoint import read  # noqa: E402
from shoal.training.loop import Progress  # noqa: E402
from shoal.training.watch import Every  # noqa: E402

SHORT: dict[str, Any] = {
    "n_envs": 2,
    "backend": "serial",
    "n_steps": 10,
    "batch_size": 10,
    "n_epochs": 1,
    "eval_every": 4,
    "eval_episodes": 2,
    "save_every": 0,
    "calibrate": False,
    "tensorboard": False,
    "device": "cpu",
    "shows": False,
}


class OneIsRight(gymnasium.Env[Any, Any]):
    """Five steps; action 1 is worth 1, action 0 nothing."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.num_steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        return np.zeros(1, np.float32), float(action), self.num_steps == 5, False, {}


class Told(nn.Module):
    """A policy that prefers what it is told to."""

    latest: Any = None

    def __init__(self, space: Any, num_parameters: int) -> None:
        super().__init__()
        self.liking = nn.Parameter(torch.zeros(num_parameters))
        self.value = nn.Parameter(torch.zeros(1))
        Told.latest = self

    def forward(self, observation: Any) -> Any:
        count = len(observation)
        return self.liking.expand(count, -1), self.value.expand(count)


def prefer(action: int) -> Any:
    def tell(run: Progress) -> None:
        with torch.no_grad():
            Told.latest.liking[:] = torch.tensor([9.0, -9.0] if action == 0 else [-9.0, 9.0])

    return tell


def run(callback: Any, **changes: Any) -> Any:
    return shoal.train(env=OneIsRight, policy=Told, callbacks=[callback], **(SHORT | changes))


def best(folder: Path) -> Any:
    return read(folder / "checkpoints/best_model.safetensors").about


def test_a_run_that_goes_on_keeps_a_best_model_that_was_better(tmp_path: Path) -> None:
    first = run(prefer(1), total_steps=100, run_dir=tmp_path)
    before = best(first.folder)
    assert before["evaluation"]["eval/return_mean"] == 5.0
    worse = run(prefer(0), resume_from=first.folder, total_steps=200, eval_every=0)
    assert worse.evaluation.mean == 0.0
    assert best(first.folder) == before


def test_a_run_that_goes_on_replaces_a_best_model_that_was_worse(tmp_path: Path) -> None:
    first = run(prefer(0), total_steps=100, run_dir=tmp_path, eval_every=0)
    assert best(first.folder)["evaluation"]["eval/return_mean"] == 0.0
    run(prefer(1), resume_from=first.folder, total_steps=200)
    now = best(first.folder)
    assert (now["evaluation"]["eval/return_mean"], now["step"] > 100) == (5.0, True)


def test_a_best_model_that_cannot_be_read_is_replaced_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = run(prefer(1), total_steps=100, run_dir=tmp_path)
    (first.folder / "checkpoints/best_model.safetensors").write_bytes(b"")
    run(prefer(0), resume_from=first.folder, total_steps=200, eval_every=0)
    assert "does not say how good it is, and will be replaced" in caplog.text
    assert best(first.folder)["evaluation"]["eval/return_mean"] == 0.0


def test_a_best_model_that_could_not_be_kept_is_tried_again(tmp_path: Path) -> None:
    def late(progress: Progress) -> None:
        prefer(1)(progress)
        (checkpoints,) = tmp_path.glob("*/checkpoints")
        in_its_way = checkpoints / "best_model.safetensors"
        if progress.num_updates == 1:
            in_its_way.mkdir()  # so that nothing can take its name
        if progress.num_updates == 4:
            in_its_way.rmdir()

    done = run(late, total_steps=100, run_dir=tmp_path, eval_every=8)
    assert best(done.folder)["evaluation"]["eval/return_mean"] == 5.0


def test_what_is_done_every_so_many_episodes_does_not_shift_when_a_run_is_broken_off() -> None:
    counts = [3, 9, 10, 17, 24, 41, 49, 50]
    straight = Every(10)
    told = [count for count in counts if straight(count)]
    assert told == [10, 24, 41, 50]
    for broken in counts:
        resumed = Every(10, broken)
        later = [count for count in counts if count > broken]
        assert [count for count in later if resumed(count)] == [one for one in told if one > broken]


def test_never_is_never() -> None:
    never = Every(0)
    assert not any(never(count) for count in range(0, 1000, 7))
