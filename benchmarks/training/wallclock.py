"""From a bare clone to a solved CartPole, as somebody new to it would: `git clone`, `make`."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.plan import ROOT
from benchmarks.training.task import Answer, Numbers, Task
from shoal.training.config import PPORun
from shoal.training.settings import load_yaml

CLONE, AGAIN = "git clone, make train-cartpole", "make train-cartpole, again"


def measure(repeats: int) -> Iterator[Answer]:
    """Each time in a clone of its own: with what it installs, and once more without."""
    for number in range(repeats):
        with tempfile.TemporaryDirectory(prefix="shoal-clone-") as folder:
            clone, begun = Path(folder) / "shoal", time.perf_counter()
            _call(["git", "clone", "--quiet", str(ROOT), str(clone)], Path(folder))
            yield _trained(CLONE, clone, begun, number)
            yield _trained(AGAIN, clone, time.perf_counter(), number)


def _trained(what: str, clone: Path, begun: float, number: int) -> Answer:
    runs = "first" if what == CLONE else "again"
    _call(["make", "train-cartpole", f"ARGS=--run-dir {runs}"], clone)
    whole_s = time.perf_counter() - begun
    (run,) = (clone / runs).iterdir()
    return Answer(
        task_of(what, load_yaml(PPORun, run / "config.yaml")), number, numbers_of(run, whole_s)
    )


def task_of(what: str, config: PPORun) -> Task:
    """What was trained, as the tables have it."""
    ppo, steps = config.ppo, config.goal.total_steps
    assert steps is not None
    shape = (config.envs.n_envs, ppo.n_steps, ppo.batch_size, ppo.n_epochs)
    return Task(what, config.envs.env, *shape, steps, seed=config.run.seed)


def numbers_of(run: Path, whole_s: float) -> Numbers:
    """What a run's folder tells."""
    summary = json.loads((run / "summary.json").read_text())
    return {
        "whole_s": whole_s,
        "whole_steps": summary["steps"],
        "run_s": summary["seconds"],
        "steps_per_s": summary["steps_per_s"],
        "evaluation": summary["evaluation"]["eval/return_mean"],
    }


def _call(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
