"""A run told line by line, on a terminal as in a log file, with a block at the end that sums it up.

The other way to look on is `console`, which draws over itself. Both get their numbers and most of
their words from `progress`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import rich.console

from shoal.monitor import progress as words
from shoal.monitor.progress import Progress, Undertaking
from shoal.monitor.sink import Metrics
from shoal.monitor.speaker import Speaker

RULE = "=" * 50
COMPLETE, STOPPED = "PARALLEL TRAINING COMPLETE", "PARALLEL TRAINING STOPPED"


class Lines:
    """A sink for people who want to keep what they read; begins with what was made ready."""

    def __init__(self, run: Undertaking, screen: rich.console.Console | None = None) -> None:
        self._speaker = Speaker(screen)
        self._progress = Progress(run, self._speaker.screen.get_time)
        self._num_updates = 0
        self._is_closed = False
        self._speaker.say(*(f"Initialisation: {line}" for line in words.opening(run)))

    def __str__(self) -> str:
        return "the lines on the screen"

    def write(self, step: int, metrics: Metrics) -> None:
        if self._is_closed:
            return
        before = self._progress.latest.get("engine/restarts", 0)
        self._progress.take(step, metrics)
        self._num_updates += "train/policy_loss" in metrics
        if metrics.get("engine/restarts", 0) > before:
            self._speaker.say(words.restarted(before, metrics["engine/restarts"]))
        if "eval/return_mean" in metrics:
            self._speaker.say(words.evaluation(metrics))
        if self._progress.is_due():
            self._progress.mark_told()
            self._speaker.say(advance(self._progress), learning(self._progress, self._num_updates))

    def finish(self, summary: Mapping[str, str], paths: Mapping[str, Path]) -> None:
        """Say what came out of it and where that was written; then close."""
        self._speaker.say(*closing(self._progress, summary.get("stopped by")))
        if paths:
            self._speaker.say("Written:", *(f"  {line}" for line in words.aligned(paths)))
        self.close()

    def close(self) -> None:
        if not self._is_closed:
            num_envs = self._progress.run.num_envs
            environments = "environment is" if num_envs == 1 else "environments are"
            self._speaker.say(f"Clean-up: metrics are written, {num_envs} {environments} closed")
        self._is_closed = True


# --- words -------------------------------------------------------------------------------------


def advance(progress: Progress) -> str:
    """How far it is, and how the latest episodes went."""
    last, length, mean = (
        progress.latest.get(f"episode/{name}") for name in ("return", "length", "return_mean_10")
    )
    parts = [
        progress.position(),
        f"Episode {progress.episodes}",
        f"Reward: {words.figure(last)}",
        f"Length: {words.whole_figure(length)}",
        f"Average(10): {words.figure(mean)}",
        f"Time: {words.duration(_time_s(progress))}",
    ]
    return " | ".join(parts)


def learning(progress: Progress, num_updates: int) -> str:
    """What the latest update came to."""
    known = [name for name in (*words.LOSSES, "train/epochs") if name in progress.latest]
    told = [
        f"{name.partition('/')[2].replace('_', ' ')} {words.brief(progress.latest[name])}"
        for name in known
    ]
    return " | ".join([f"Optimisation: update {num_updates}", *told])


def closing(progress: Progress, stopped_by: str | None = None) -> list[str]:
    """The block at the end. Seconds are those of training: collecting and learning."""
    seconds, mean = _time_s(progress), progress.latest.get("episode/return_mean_10")
    entries = {
        "Final step": str(progress.step),
        "Total episodes": str(progress.episodes),
        "Training time": f"{seconds:.1f} s",
        "Average reward (last 10)": words.NONE if mean is None else f"{mean:.2f}",
        "Environments used": str(progress.run.num_envs),
        "Steps per second": f"{_rate(progress.step, seconds):.1f}",
        "Episodes per second": f"{_rate(progress.episodes, seconds):.2f}",
    }
    told = [f"{name}: {value}" for name, value in entries.items()]
    title = COMPLETE if stopped_by is None else f"{STOPPED} by {stopped_by}"
    return [RULE, title, RULE, *told, RULE]


def _time_s(progress: Progress) -> float:
    return progress.latest.get("run/time_s", progress.elapsed_s())


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
