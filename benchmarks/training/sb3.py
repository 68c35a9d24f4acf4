"""Stable-Baselines3's PPO, as its users call it, and a callback that watches."""

from __future__ import annotations

import time
from typing import Literal

import torch
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks.learning.sb3 import make_ppo
from benchmarks.learning.tasks import TASKS, Settings
from benchmarks.training.task import Numbers, Task
from benchmarks.training.watch import Enough, Moment, Watch, watch_for
from shoal.vector.source import resolve


def measure(
    task: Task,
    begun: float,
    *,
    backend: Literal["dummy", "subproc"],
    num_threads: int | None = None,
) -> tuple[Numbers, str]:
    """Numbers, and with how many threads; None: as many as PyTorch decides."""
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    watch = watch_for(task, begun)
    factories = list(resolve(task.env).factories) * task.n_envs
    model = make_ppo(factories, settings_of(task), task.seed, backend)
    try:
        model.learn(task.total_steps, callback=Watching(watch))
    except Enough:
        pass
    finally:
        model.get_env().close()
    num_threads = torch.get_num_threads()
    return watch.numbers, f"{num_threads} thread{'' if num_threads == 1 else 's'}"


def settings_of(task: Task) -> Settings:
    """Its own tuned ones towards a threshold; else defaults, which are the same as Shoal's."""
    if task.threshold is not None:
        (known,) = [one for one in TASKS.values() if one.env == task.env]
        return known.sb3
    told = {"n_steps": task.n_steps, "batch_size": task.batch_size, "n_epochs": task.n_epochs}
    return Settings(task.n_envs, told)


class Watching(BaseCallback):  # type: ignore[misc]  # it has no types here
    """An update is over when the next rollout starts."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._collected = self._before = time.perf_counter()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self._collected = time.perf_counter()

    def _on_rollout_start(self) -> None:
        if not self.num_timesteps:
            self._before = time.perf_counter()
            return
        now = time.perf_counter()
        shares = {"learning": (now - self._collected) / (now - self._before)}
        self._before = now
        episodes = self.model.ep_info_buffer or ()
        returns = [one["r"] for one in episodes]
        mean = sum(returns) / len(returns) if returns else 0.0
        if self._watch.mark(Moment(self.num_timesteps, shares, len(returns), mean)):
            raise Enough

    _on_training_end = _on_rollout_start
