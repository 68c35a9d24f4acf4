"""A trainer that is killed, or told twice to stop, leaves a run that goes on as if nothing was."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from faults.conftest import Record, Scale  # noqa: E402
from faults.program import Program, wait_until  # noqa: E402
from shoal.monitor.jsonl import read as read_rows  # noqa: E402
from shoal.training.checkpoint import Checkpoint, newest, read  # noqa: E402

WITHIN_S = 60.0
"""For what takes a second or two where nobody else computes."""
GONE_S = 2.0
STEPS = 64
"""Of one update."""

COMMAND = """
import os, sys
os.chdir({folder!r})
os.execv(sys.executable, [sys.executable, "-m", "shoal", "train", "ppo", *{arguments!r}])
"""
RUN: dict[str, Any] = {
    "env": "CartPole-v1",
    "n-envs": 2,
    "backend": "process",
    "num-workers": 2,
    "n-steps": 32,
    "n-epochs": 1,
    "learning-rate": 1e-5,  # episodes stay short, so that there are many
    "device": "cpu",
    "seed": 3,
    "calibrate": False,
    "save-every": 15,
    "eval-every": 20,
    "eval-episodes": 1,
    "log-interval": 1_000_000,
}


def flags(settings: dict[str, Any]) -> list[str]:
    words = []
    for name, value in settings.items():
        words += [f"--no-{name}"] if value is False else [f"--{name}", str(value)]
    return words


def train(folder: Path, settings: dict[str, Any]) -> Program:
    """`shoal train ppo`, as a process of its own that works in this folder."""
    source = COMMAND.format(folder=str(folder), arguments=flags(settings))
    return Program(source, folder, PYTHONUNBUFFERED="1")


def finish(folder: Path, settings: dict[str, Any]) -> None:
    with train(folder, settings) as program:
        program.output()
        assert program.left_after(GONE_S) == []


def checkpoints(run: Path) -> set[str]:
    return {path.name for path in run.glob("checkpoints/*.safetensors")}


def assert_same(mine: Checkpoint, theirs: Checkpoint) -> None:
    assert mine.about["step"] == theirs.about["step"]
    assert mine.about["kept"] == theirs.about["kept"]
    assert mine.about.get("evaluation") == theirs.about.get("evaluation")
    assert mine.tensors.keys() == theirs.tensors.keys()
    for name, tensor in theirs.tensors.items():
        assert torch.equal(mine.tensors[name], tensor), name


def test_a_trainer_that_is_killed_again_and_again_learns_what_it_would_have_learnt(
    tmp_path: Path, scale: Scale, figure: Record
) -> None:
    kills, moments = scale(short=2, full=20), random.Random(7)
    goal = STEPS * 40 * (kills + 2)
    asked = RUN | {"total-steps": goal}
    finish(tmp_path, asked | {"run-dir": "calm"})
    with train(tmp_path, asked | {"run-dir": "killed"}) as program:
        kill(program, tmp_path / "killed", moments, is_first=True)
    (run,) = (tmp_path / "killed").iterdir()
    steps = [newest(run / "checkpoints")[1].about["step"]]
    for _ in range(kills - 1):
        with train(tmp_path, {"resume-from": run}) as program:
            kill(program, run, moments)
        steps.append(newest(run / "checkpoints")[1].about["step"])
    assert steps == sorted(steps)
    assert steps[-1] < goal, "it was over before it was killed so often"
    # As a kill in the middle of writing leaves it, should none have come then.
    (run / "checkpoints/.final_model.safetensors.0123.unfinished").touch()
    finish(tmp_path, {"resume-from": run})
    (calm,) = (tmp_path / "calm").iterdir()
    for name in ("final_model", "best_model"):
        assert_same(*(read(one / f"checkpoints/{name}.safetensors") for one in (run, calm)))
    assert learnt(run) == learnt(calm)
    assert [path.name for path in run.rglob(".*")] == [], "something unfinished was left"
    figure("F20", "CartPole, 2 workers", f"{kills} of {kills}, bit-identical")


def kill(program: Program, run: Path, moments: random.Random, is_first: bool = False) -> None:
    """At a random moment: while it begins, or some checkpoints later; nothing of it is left."""
    if is_first or moments.random() < 0.7:
        before, more = checkpoints_anywhere(run), moments.randint(1, 3)
        assert wait_until(lambda: len(checkpoints_anywhere(run) - before) >= more, WITHIN_S)
        pause(moments.uniform(0.0, 0.1))
    else:
        pause(moments.uniform(0.0, 3.0))
    assert program.process.poll() is None, program.errors
    program.kill(signal.SIGKILL)
    program.process.wait()
    assert program.left_after(GONE_S) == []


def checkpoints_anywhere(folder: Path) -> set[Path]:
    return set(folder.rglob("checkpoint_ep*.safetensors"))


def pause(seconds: float) -> None:
    """The moment is the test's subject; nothing is waited for."""
    wait_until(lambda: False, seconds)


def learnt(run: Path) -> list[tuple[float, float]]:
    """What every update came to, each told once."""
    rows = read_rows(run / "metrics.jsonl")
    return [(row["step"], row["train/value_loss"]) for row in rows if "train/value_loss" in row]


# --- told to stop ---------------------------------------------------------------------------------

SLEEPER = """
import pathlib, threading
import gymnasium


class Sleeper(gymnasium.Wrapper):
    num_steps = 0

    def __init__(self):
        super().__init__(gymnasium.make("CartPole-v1"))

    def step(self, action):
        self.num_steps += 1
        if self.num_steps == 200:
            pathlib.Path("asleep").touch()
            while True:
                threading.Event().wait(1.0)
        return super().step(action)
"""


@pytest.mark.parametrize(
    ("backend", "second"),
    [("serial", signal.SIGINT), ("process", signal.SIGINT), ("process", signal.SIGTERM)],
)
def test_a_second_signal_ends_an_update_at_once(
    backend: str, second: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    asked = {"env": "sleeper:Sleeper", "backend": backend, "save-every": 1, "eval-every": 0}
    with train(tmp_path, RUN | asked | {"total-steps": 10**9, "run-dir": "runs"}) as program:
        assert wait_until((tmp_path / "asleep").exists, WITHIN_S), program.errors
        program.kill(signal.SIGINT)
        assert wait_until(lambda: "finishing this update" in program.errors, WITHIN_S)
        assert program.process.poll() is None, "it did not wait for the update"
        program.kill(second)
        status = program.process.wait(WITHIN_S)
        assert status == (130 if second == signal.SIGINT else -signal.SIGTERM)
        assert program.left_after(GONE_S) == []
        assert "Traceback" not in program.errors
    (run,) = (tmp_path / "runs").iterdir()
    assert newest(run / "checkpoints")[1].about["step"] > 0
    assert "final_model.safetensors" not in checkpoints(run)


@pytest.mark.parametrize("is_over", [True, False], ids=["over", "interrupted"])
def test_a_signal_while_the_end_is_made_ends_it_at_once(is_over: bool, tmp_path: Path) -> None:
    endless = {"eval-every": 0, "eval-episodes": 10**9, "run-dir": "runs"}
    goal = {"total-steps": 4 * STEPS if is_over else 10**9}
    with train(tmp_path, RUN | endless | goal) as program:
        if not is_over:
            assert wait_until(lambda: bool(checkpoints_anywhere(tmp_path)), WITHIN_S)
            program.kill(signal.SIGINT)
        final = "runs/*/checkpoints/final_model.safetensors"
        assert wait_until(lambda: any(tmp_path.glob(final)), WITHIN_S), program.errors
        assert program.process.poll() is None, program.errors
        program.kill(signal.SIGINT)
        assert program.process.wait(WITHIN_S) == 130
        assert program.left_after(GONE_S) == []
        assert "Traceback" not in program.errors
        assert "What was saved before is whole" in program.errors
    (run,) = (tmp_path / "runs").iterdir()
    step = newest(run / "checkpoints")[1].about["step"]
    finish(tmp_path, {"resume-from": run, "total-steps": step + STEPS, "eval-episodes": 1})
    assert read(run / "checkpoints/final_model.safetensors").about["step"] == step + STEPS
