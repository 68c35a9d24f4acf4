"""Callbacks that end a run, for users to hand to `shoal.train`."""

from __future__ import annotations

from shoal.errors import ConfigError
from shoal.training.loop import Progress


class StopAt:
    """Ends a run when the latest 100 episodes have this mean return; not before there are 100."""

    def __init__(self, mean_return: float) -> None:
        if not mean_return == mean_return:
            raise ConfigError("StopAt was given nan, which no return reaches. Give it a number.")
        self.mean_return = mean_return

    def __call__(self, run: Progress) -> None:
        if run.metrics["run/episodes"] < 100:
            return
        if run.metrics.get("episode/return_mean", float("-inf")) >= self.mean_return:
            run.stop(f"a mean return of {self.mean_return:g} over the latest 100 episodes")
