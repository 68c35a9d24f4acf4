"""How far a run has come, and the words for it: the same on a terminal and in a log file.

Nothing here prints. What a run is about to do is an `Undertaking`; a `Progress` follows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.monitor.metrics import METRICS
from shoal.monitor.sink import Metrics

NONE = "–"
HEAD = frozenset(
    {
        "run/episodes",
        "episode/return",
        "episode/length",
        "episode/return_mean",
        "engine/steps_per_s",
        "engine/restarts",
    }
)
"""What the first lines say already."""
LOSSES = ("train/policy_loss", "train/value_loss", "train/entropy")
"""What a log file is told besides, with the names that an algorithm has added."""


@dataclass(frozen=True, slots=True)
class Undertaking:
    """What a run is about to do, as far as people are told."""

    algorithm: str
    env: str
    num_envs: int
    backend: str
    start_method: str | None
    """None where no process is started."""
    total_steps: int | None
    total_episodes: int | None
    log_interval: int
    """Finished episodes from one line to the next, where there is no terminal."""
    device: str
    folder: Path | None
    first_step: int = 0
    """Where a resumed run goes on."""
    first_episode: int = 0


class Progress:
    """Follows a run through its metrics; `clock` gives seconds."""

    def __init__(self, run: Undertaking, clock: Callable[[], float]) -> None:
        self.run = run
        self.step = run.first_step
        self.episodes = self._told = run.first_episode
        self.num_completed = 0
        """Episodes that ended in the latest rollout."""
        self.latest: dict[str, float] = {}
        self._clock = clock
        self._begun_s = clock()
        self._first_share = self.share() or 0.0

    def take(self, step: int, metrics: Metrics) -> None:
        self.step = step
        self.latest.update(metrics)
        if "run/episodes" in metrics:
            before, self.episodes = self.episodes, int(metrics["run/episodes"])
            self.num_completed = self.episodes - before

    def is_due(self) -> bool:
        """Whether enough episodes have ended since the last line."""
        return self.episodes - self._told >= self.run.log_interval

    def mark_told(self) -> None:
        self._told = self.episodes

    def share(self) -> float | None:
        """How much is done, 0 to 1, by whichever bound is nearer; None without one."""
        bounds = self._bounds()
        return min(1.0, max(bounds)[0]) if bounds else None

    def position(self) -> str:
        bounds = self._bounds()
        return max(bounds)[1] if bounds else f"Step {self.step:,}"

    def left_s(self) -> float | None:
        """The time that is left at the pace so far; None while that is unknown."""
        share = self.share()
        if share is None or share <= self._first_share:
            return None
        return self.elapsed_s() * (1 - share) / (share - self._first_share)

    def elapsed_s(self) -> float:
        return self._clock() - self._begun_s

    def steps_per_s(self) -> float | None:
        elapsed_s = self.elapsed_s()
        overall = (self.step - self.run.first_step) / elapsed_s if elapsed_s > 0 else None
        return self.latest.get("engine/steps_per_s", overall)

    def _bounds(self) -> list[tuple[float, str]]:
        found = []
        if total := self.run.total_steps:
            found.append((self.step / total, f"Step {self.step:,}/{total:,}"))
        if total := self.run.total_episodes:
            found.append((self.episodes / total, f"Episode {self.episodes}/{total}"))
        return found


# --- lines -------------------------------------------------------------------------------------


def opening(run: Undertaking) -> list[str]:
    """What is said before anything happens."""
    about = [f"{run.algorithm} on {run.env}", f"backend {run.backend}", f"device {run.device}"]
    about += [f"goal {goal}"] if (goal := _goal(run)) else []
    if run.folder is not None:
        about.append(f"folder {run.folder}")
    if run.num_envs == 1:
        return ["Sequential mode: 1 environment", " | ".join(about)]
    method = [] if run.start_method is None else [f"Start method: {run.start_method}"]
    return [
        f"Using {run.num_envs} parallel environments for training",
        *method,
        f"Parallel mode: {run.num_envs} environments",
        " | ".join(about),
    ]


def _goal(run: Undertaking) -> str:
    bounds = {"steps": run.total_steps, "episodes": run.total_episodes}
    return " or ".join(f"{bound:,} {what}" for what, bound in bounds.items() if bound)


def rewards(progress: Progress) -> str:
    last, length, mean = (
        progress.latest.get(f"episode/{name}") for name in ("return", "length", "return_mean")
    )
    return f"Reward: {figure(last)} | Length: {whole_figure(length)} | Mean(100): {figure(mean)}"


def completed(progress: Progress) -> str:
    return f"n_completed_episodes: {progress.num_completed} | n_envs: {progress.run.num_envs}"


def pace(progress: Progress) -> str:
    """Steps per second, and the time that is left."""
    speed, left_s = progress.steps_per_s(), progress.left_s()
    words = [] if speed is None else [f"{whole_figure(speed)} steps/s"]
    return " | ".join([*words, *([] if left_s is None else [f"{duration(left_s)} left"])])


def one_line(progress: Progress) -> str:
    """All of it, for where there is no terminal."""
    known = [name for name in LOSSES if name in progress.latest]
    others = [name for name in progress.latest if name not in METRICS]
    words = [progress.position(), rewards(progress), completed(progress), pace(progress)]
    words += [f"{name}: {brief(progress.latest[name])}" for name in known + others]
    return " | ".join(word for word in words if word)


def details(progress: Progress) -> dict[str, str]:
    """By group: every metric that the other lines do not show."""
    found: dict[str, list[str]] = {}
    for name, value in progress.latest.items():
        group, _, short = name.rpartition("/")
        if name not in HEAD:
            found.setdefault(group, []).append(f"{short}={brief(value)}")
    return {group: "   ".join(words) for group, words in found.items()}


def evaluation(metrics: Metrics) -> str:
    names = ("return_mean", "return_std", "length_mean", "episodes")
    mean, std, length, count = (metrics.get(f"eval/{name}") for name in names)
    episodes = f"{whole_figure(count)} episode{'' if count == 1 else 's'}"
    spread = f"{figure(mean)} ± {figure(std)}"
    return f"Evaluation: {spread} over {episodes}, length {whole_figure(length)}"


def restarted(before: float, now: float) -> str:
    new = whole_figure(now - before)
    workers = "worker was" if new == "1" else "workers were"
    return f"{new} {workers} restarted ({whole_figure(now)} since the run began)"


def figure(value: float | None) -> str:
    """One decimal of a large number, three digits of a small one."""
    if value is None or math.isnan(value):
        return NONE
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def whole_figure(value: float | None) -> str:
    return NONE if value is None or math.isnan(value) else f"{value:,.0f}"


def brief(value: float) -> str:
    """No decimals where there are none: a count may be among the others."""
    return whole_figure(value) if float(value).is_integer() else figure(value)


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def aligned(entries: Mapping[str, object]) -> list[str]:
    """Lines of names and what belongs to them, one below the other."""
    width = max(map(len, entries), default=0)
    return [f"{name.ljust(width)}  {value}" for name, value in entries.items()]
