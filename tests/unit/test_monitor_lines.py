"""Is a run told line by line, from what was made ready to the block that sums it up?"""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
import rich.console

from shoal.monitor import Lines, Undertaking

RUN = Undertaking(
    algorithm="PPO",
    env="a game",
    num_envs=2,
    backend="thread",
    start_method=None,
    total_steps=20_000,
    total_episodes=None,
    log_interval=10,
    device="cpu",
    folder=Path("training_runs/1"),
)


class Page(io.StringIO):
    """A stream whose lines can be asked for."""

    def tell(self, run: Undertaking = RUN) -> Lines:
        return Lines(run, rich.console.Console(file=self, width=200, get_time=lambda: 0.0))

    @property
    def lines(self) -> list[str]:
        return self.getvalue().splitlines()


@pytest.fixture
def page() -> Page:
    return Page()


def metrics(episodes: int, time_s: float) -> dict[str, float]:
    return {
        "run/episodes": episodes,
        "run/time_s": time_s,
        "episode/return": 3.25,
        "episode/length": 500,
        "episode/return_mean_10": 2.5,
        "train/policy_loss": -0.0123,
        "train/value_loss": 0.5,
        "train/entropy": 1.9,
        "train/epochs": 6,
    }


def test_what_was_made_ready_comes_first(page: Page) -> None:
    page.tell()
    assert page.lines[0] == "Initialisation: Using 2 parallel environments for training"
    assert page.lines[-1].startswith("Initialisation: PPO on a game | backend thread | device cpu")


def test_progress_and_learning_are_told_every_so_many_episodes(page: Page) -> None:
    lines = page.tell()
    first = len(page.lines)
    for episodes in (4, 9, 11, 19, 25):
        lines.write(1_000 * episodes, metrics(episodes, time_s=61.0))
    progress, learning, *rest = page.lines[first:]
    assert progress == (
        "Step 11,000/20,000 | Episode 11 | Reward: 3.25 | Length: 500 | Average(10): 2.5 "
        "| Time: 1:01"
    )
    assert learning == (
        "Optimisation: update 3 | policy loss -0.0123 | value loss 0.5 | entropy 1.9 | epochs 6"
    )
    assert [line.partition(" |")[0] for line in rest] == [
        "Step 25,000/20,000",
        "Optimisation: update 5",
    ]


def test_the_end_is_a_block_of_sums(page: Page) -> None:
    lines = page.tell()
    lines.write(20_000, metrics(40, time_s=8.0))
    lines.finish({"ignored": "here"}, {"curves": Path("curves.png")})
    text = page.getvalue()
    for line in (
        "PARALLEL TRAINING COMPLETE",
        "Final step: 20000",
        "Total episodes: 40",
        "Training time: 8.0 s",
        "Average reward (last 10): 2.50",
        "Environments used: 2",
        "Steps per second: 2500.0",
        "Episodes per second: 5.00",
        "  curves  curves.png",
    ):
        assert line in page.lines, text
    assert page.lines[-1] == "Clean-up: metrics are written, 2 environments are closed"


def test_a_run_that_was_stopped_is_not_called_complete(page: Page) -> None:
    lines = page.tell()
    lines.write(7_000, metrics(14, time_s=3.0))
    lines.finish({"stopped by": "SIGINT"}, {})
    assert "PARALLEL TRAINING STOPPED by SIGINT" in page.lines
    assert "Final step: 7000" in page.lines
    assert "COMPLETE" not in page.getvalue()


def test_a_run_that_is_broken_off_cleans_up_once_and_has_no_block(page: Page) -> None:
    lines = page.tell(replace(RUN, num_envs=1))
    lines.close()
    lines.close()
    lines.write(100, metrics(50, time_s=1.0))
    assert page.getvalue().count("Clean-up") == 1
    assert page.lines[-1].endswith("1 environment is closed")
    assert "COMPLETE" not in page.getvalue()


def test_evaluations_and_restarts_have_their_lines(page: Page) -> None:
    lines = page.tell()
    lines.write(1, {"engine/restarts": 1})
    lines.write(1, {"eval/return_mean": 3.0, "eval/return_std": 1.0, "eval/episodes": 20})
    assert "1 worker was restarted (1 since the run began)" in page.lines
    assert any(line.startswith("Evaluation: 3 ± 1 over 20 episodes") for line in page.lines)


def test_nothing_before_the_first_episode_is_no_error(page: Page) -> None:
    lines = page.tell()
    lines.finish({}, {})
    assert "Average reward (last 10): –" in page.lines
    assert "Steps per second: 0.0" in page.lines


def test_a_closed_stream_is_silence(page: Page) -> None:
    lines = page.tell()
    page.close()
    lines.write(10, metrics(50, time_s=1.0))
    lines.finish({}, {"a": Path("b")})
