"""From a bare clone to what was trained, as somebody new to it would: `git clone`, `make`."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.plan import ROOT
from benchmarks.training.task import Answer, Numbers, Task
from shoal.training.config import PPORun
from shoal.training.settings import load_yaml

COMMANDS = {"train-cartpole": "ARGS=--run-dir {folder}", "train": "TRAIN_OUTPUT_DIR={folder}"}
"""What is made, and how it is told where its run goes."""


def measure(repeats: int, targets: Sequence[str] = tuple(COMMANDS)) -> Iterator[Answer]:
    """Each time in a clone of its own: with what it installs, and once more without."""
    for number in range(repeats):
        for target in targets:
            with tempfile.TemporaryDirectory(prefix="shoal-clone-") as folder:
                clone, begun = Path(folder) / "shoal", time.perf_counter()
                _call(["git", "clone", "--quiet", str(ROOT), str(clone)], Path(folder))
                yield _trained(from_clone(target), clone, target, begun, number)
                yield _trained(again(target), clone, target, time.perf_counter(), number)


def from_clone(target: str) -> str:
    return f"git clone, make {target}"


def again(target: str) -> str:
    return f"make {target}, again"


def _trained(what: str, clone: Path, target: str, begun: float, number: int) -> Answer:
    runs = "first" if what == from_clone(target) else "again"
    _call(["make", target, COMMANDS[target].format(folder=runs)], clone)
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
