"""Shoal: `shoal.train` as anybody calls it, and a callback that watches.

Metrics are written as always: metrics.jsonl, and TensorBoard where it is installed.
"""

from __future__ import annotations

import importlib.util
import logging
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.learning.tasks import TASKS
from benchmarks.plan import ROOT
from benchmarks.training.gpu import Gpu
from benchmarks.training.task import Numbers, Task
from benchmarks.training.watch import Enough, Moment, watch_for
from shoal.training.api import train
from shoal.training.config import PPORun
from shoal.training.loop import Progress
from shoal.training.settings import load_yaml, override

SHARES = ("stepping", "inference", "learning")


def measure(task: Task, begun: float, **settings: Any) -> tuple[Numbers, str]:
    """Numbers, and where the environments ran."""
    watching, choice = Watching(task, begun), Choice()
    with tempfile.TemporaryDirectory(prefix="shoal-train-") as folder:
        written = {"run_dir": Path(folder), "tensorboard": _has_tensorboard()}
        try:
            config = override(config_of(task), **written, **settings)
            train(config, callbacks=[watching], shows=False)
        except Enough:
            pass
    return watching.numbers, choice.told


def config_of(task: Task) -> PPORun:
    """What is asked for, else defaults; towards a threshold as the file in `configs` says."""
    if task.threshold is not None:
        (known,) = [one for one in TASKS.values() if one.env == task.env]
        config = load_yaml(PPORun, ROOT / known.config)
        return override(config, seed=task.seed, total_steps=task.total_steps)
    return override(
        PPORun(),
        env=task.env,
        n_envs=task.n_envs,
        n_steps=task.n_steps,
        batch_size=task.batch_size,
        n_epochs=task.n_epochs,
        seed=task.seed,
        device=task.device,
        total_steps=task.total_steps,
    )


class Watching:
    """A callback that tells a watch of every update, and ends the training when it is enough.

    On a GPU one more update follows, for its kernels.
    """

    def __init__(self, task: Task, begun: float) -> None:
        self._watch = watch_for(task, begun)
        self._gpu = Gpu(task.device)
        self._is_measured = False

    @property
    def numbers(self) -> Numbers:
        numbers = self._watch.numbers
        return numbers | self._gpu.numbers(numbers.get("update_s"))

    def __call__(self, run: Progress) -> None:
        if self._is_measured:
            self._gpu.end()
            raise Enough
        told = run.metrics
        shares = {name: told[f"time/{name}"] for name in SHARES}
        returns = told.get("episode/return_mean", 0.0)
        moment = Moment(run.step, shares, int(told["run/episodes"]), returns)
        if run.num_updates == 1:
            self._gpu.watch()
        if not self._watch.mark(moment):
            return
        self._is_measured = True
        if not self._gpu.begin():
            raise Enough


class Choice(logging.Handler):
    """Which backend was chosen, as the log tells it; one environment is stepped in line."""

    def __init__(self) -> None:
        super().__init__()
        self.told = "serial"
        logger = logging.getLogger("shoal")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith("backend=") and isinstance(record.args, tuple):
            backend, num_workers, *_ = record.args
            self.told = f"{backend} ×{num_workers}"


def _has_tensorboard() -> bool:
    return importlib.util.find_spec("tensorboard") is not None
