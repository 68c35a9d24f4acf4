"""How fast training would be with one environment: measured for a moment, and never asserted."""

from __future__ import annotations

import time
from dataclasses import replace

from shoal.algos.agent import MakeNetwork
from shoal.training.config import GoalConfig, PPORun
from shoal.training.loop import Progress, learn
from shoal.training.ppo import Training, threads
from shoal.vector.source import Source


class Stopwatch:
    """Stops a run after some seconds, the first update left out."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun: tuple[float, int] | None = None
        self.steps_per_s = 0.0

    def __call__(self, run: Progress) -> None:
        now = time.perf_counter()
        if self._begun is None:
            self._begun = now, run.step
            return
        begun, step = self._begun
        self.steps_per_s = (run.step - step) / (now - begun)
        if now - begun >= self._seconds:
            run.stop("measured")


def one_env_steps_per_s(
    config: PPORun, env: Source, make_network: MakeNetwork | None, seconds: float = 1.0
) -> float:
    """Steps per second of the same training with a single environment, in this process."""
    alone = replace(
        config,
        envs=replace(config.envs, n_envs=1, backend="serial", num_workers=None, overlap=False),
        goal=GoalConfig(),
    )
    watch = Stopwatch(seconds)
    with Training(alone, env, make_network) as training, threads(None, training.agent):
        learn(training.source, training.learner, Progress([]), [watch])
    return watch.steps_per_s
