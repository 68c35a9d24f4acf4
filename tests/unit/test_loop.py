"""The loop: what it measures, and what callbacks can do to a run."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import shoal  # noqa: E402
from shoal.monitor.jsonl import read as read_rows  # noqa: E402
from shoal.rollout.rollout import Rollout  # noqa: E402
from shoal.training.checkpoint import read  # noqa: E402
from shoal.training.loop import Progress, learn, shares_of  # noqa: E402

SHORT: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 2,
    "backend": "serial",
    "n_steps": 64,
    "n_epochs": 2,
    "total_steps": 512,
    "eval_episodes": 1,
    "calibrate": False,
    "tensorboard": False,
    "device": "cpu",
}


def run(folder: Path, **changes: Any) -> Any:
    return shoal.train("ppo", run_dir=folder, shows=False, **{**SHORT, **changes})


def updates(folder: Path) -> list[dict[str, Any]]:
    """Rows that tell of an update."""
    return [row for row in read_rows(folder / "metrics.jsonl") if "train/policy_loss" in row]


def assert_same_weights(one: Any, other: Any) -> None:
    mine, theirs = (
        read(run.folder / "checkpoints/final_model.safetensors").tensors for run in (one, other)
    )
    for name, tensor in theirs.items():
        assert torch.equal(mine[name], tensor), name


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr("shoal.training.loop.time", clock)


def rollout(number: int) -> Rollout:
    """The so-manieth of 10 steps in 2 environments, in which an episode ended."""
    page = np.zeros((10, 2), np.float32)
    return Rollout(
        observations=(page,),
        actions=page,
        action_masks=None,
        log_probs=page,
        values=page,
        next_values=page,
        states=None,
        starts=page,
        rewards=page,
        terminations=page,
        truncations=page,
        valid=page,
        step=20 * number,
        version=0,
        progress=0.0,
        facts={"run/episodes": float(number)},
    )


def test_callbacks_are_in_the_time_of_a_run_and_not_in_its_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, told = Clock(monkeypatch), []

    def source() -> Any:
        for number in range(1, 4):
            clock.now += 3.0
            yield rollout(number)

    class Slow:
        def update(self, rollout: Rollout) -> dict[str, float]:
            clock.now += 1.0
            return {}

    def evaluate(run: Progress) -> None:
        told.append(dict(run.metrics))
        clock.now += 100.0

    progress = Progress([])
    learn(source(), Slow(), progress, [evaluate])
    assert [row["engine/steps_per_s"] for row in told] == [5.0, 5.0, 5.0]
    assert [row["engine/episodes_per_s"] for row in told] == [0.25, 0.25, 0.25]
    assert [row["run/time_s"] for row in told] == [4.0, 108.0, 212.0]
    assert progress.working_s == 12.0


def test_what_time_is_spent_on_is_added_up_over_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def source() -> Any:
        for number in range(1, 4):
            made = rollout(number)
            yield replace(
                made, facts=made.facts | {"time/stepping_s": number, "time/inference_s": 2}
            )

    class Slow:
        def update(self, rollout: Rollout) -> dict[str, float]:
            clock.now += 4.0
            return {}

    progress = Progress([])
    learn(source(), Slow(), progress)
    assert progress.spent_s == {"stepping": 6.0, "inference": 6.0, "learning": 12.0}
    assert progress.metrics["time/stepping"] == 3 / 9


def test_shares_of_time_are_those_of_the_whole_run(tmp_path: Path) -> None:
    kept: list[Progress] = []
    done = run(tmp_path, callbacks=[kept.append])
    assert done.summary["shares_of_time"] == shares_of(kept[-1].spent_s)
    assert sum(done.summary["shares_of_time"].values()) == pytest.approx(1.0)
    last = updates(done.folder)[-1]
    assert done.summary["shares_of_time"]["stepping"] != last["time/stepping"]


def test_a_summary_says_how_many_episodes_ended_a_second(tmp_path: Path) -> None:
    summary = run(tmp_path).summary
    seconds = summary["steps"] / summary["steps_per_s"]
    assert summary["episodes"] > 0
    assert summary["episodes_per_s"] == pytest.approx(summary["episodes"] / seconds, rel=1e-2)


def test_the_speed_of_a_run_is_that_of_its_updates(tmp_path: Path) -> None:
    done = run(tmp_path, eval_every=1, save_every=1)
    working_s = sum(128 / row["engine/steps_per_s"] for row in updates(done.folder))
    assert done.summary["steps_per_s"] == pytest.approx(512 / working_s, rel=1e-3)
    assert done.summary["seconds"] > working_s


def test_a_run_that_goes_on_counts_on(tmp_path: Path) -> None:
    first = run(tmp_path)
    shoal.train("ppo", resume_from=first.folder, total_steps=1024, shows=False)
    rows = updates(first.folder)
    assert len(rows) == 8
    times = [row["run/time_s"] for row in rows]
    assert times == sorted(times)
    for before, after in pairwise(rows):
        seconds = 128 / after["engine/steps_per_s"]
        ended = after["run/episodes"] - before["run/episodes"]
        assert after["engine/episodes_per_s"] * seconds == pytest.approx(ended)


# --- what callbacks can do --------------------------------------------------------------------


def after(num_updates: int, **settings: Any) -> Any:
    """A callback that changes settings after so many updates."""

    def change(run: Progress) -> None:
        if run.num_updates == num_updates:
            run.change(**settings)

    return change


def test_a_setting_is_changed_from_the_next_update_on(tmp_path: Path) -> None:
    callbacks = [after(2, learning_rate=1e-4, n_epochs=5)]
    rows = updates(run(tmp_path, learning_rate=1e-3, callbacks=callbacks).folder)
    assert [row["train/learning_rate"] for row in rows] == [1e-3, 1e-3, 1e-4, 1e-4]
    assert [row["train/epochs"] for row in rows] == [2, 2, 5, 5]


def test_what_was_changed_is_kept_for_a_run_that_goes_on(tmp_path: Path) -> None:
    whole = run(tmp_path / "a", total_steps=1024, callbacks=[after(3, learning_rate=1e-4)])
    half = run(tmp_path / "b", callbacks=[after(3, learning_rate=1e-4)])
    done = shoal.train("ppo", resume_from=half.folder, total_steps=1024, shows=False)
    assert updates(done.folder)[-1]["train/learning_rate"] == 1e-4
    assert_same_weights(done, whole)


def test_an_attribute_that_was_set_is_kept_for_a_run_that_goes_on(tmp_path: Path) -> None:
    def heavier(run: Progress) -> None:
        if run.step == 384:
            run.envs.set_attr("gravity", 20.0)

    whole = run(tmp_path / "a", total_steps=1024, callbacks=[heavier])
    half = run(tmp_path / "b", callbacks=[heavier])
    done = shoal.train("ppo", resume_from=half.folder, total_steps=1024, shows=False)
    assert_same_weights(done, whole)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rat": 1.0}, "Did you mean 'learning_rate'"),
        ({"learning_rate": -1.0}, "learning_rate must be above zero"),
        ({"n_steps": 7}, "n_steps cannot be changed while a run goes on"),
        ({"gamma": 0.5}, "gamma cannot be changed while a run goes on"),
    ],
)
def test_what_cannot_be_changed_is_refused_in_words(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(shoal.ConfigError, match=message):
        run(tmp_path, normalize_rewards=True, callbacks=[after(1, **settings)])


def test_a_run_without_environments_says_so() -> None:
    with pytest.raises(shoal.ConfigError, match="environments"):
        _ = Progress([]).envs
    with pytest.raises(shoal.ConfigError, match="change"):
        Progress([]).change(learning_rate=1.0)


class Tasks(gymnasium.Env[Any, Any]):
    """Every step is an episode; its reward is the task, times the scale."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    scale = 1.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.task = (options or {}).get("task", 0.0)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), self.task * self.scale, True, False, {}


@pytest.mark.parametrize("where", [{}, {"overlap": True}, {"backend": "process"}])
def test_a_callback_gives_environments_other_tasks(where: dict[str, Any], tmp_path: Path) -> None:
    def harder(run: Progress) -> None:
        run.envs.set_attr("scale", float(run.num_updates))
        run.envs.set_next_reset([0, 1], options=[{"task": 3.0}, {"task": 5.0}])

    done = run(tmp_path, env=Tasks, n_steps=2, total_steps=12, callbacks=[harder], **where)
    means = [row["episode/return_mean"] for row in updates(done.folder)]
    sums = np.diff([0.0, *(mean * 4 * (k + 1) for k, mean in enumerate(means))])
    assert sums.tolist() == pytest.approx([0.0, 8.0, 16.0])  # the second step is the planned one
