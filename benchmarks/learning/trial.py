"""One training of one library: what is written down about it, and how its policy is judged.

All go through here: the same environments, the same number of steps, the same judging.
"""

from __future__ import annotations

import datetime
import platform
import subprocess
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from benchmarks.learning.rows import Row
from benchmarks.learning.tasks import Job, Task
from benchmarks.plan import ROOT
from shoal.measure.fingerprint import fingerprint
from shoal.seeding import evaluation_seed
from shoal.training.envs import find_env

EPISODES = 100
"""Episodes that a policy is judged by."""
_POINTS = 50
_SOURCES = ("src", "configs", "benchmarks/learning", "benchmarks/constraints.txt")
"""What a row depends on."""
_PACKAGES = (
    "torch",
    "numpy",
    "gymnasium",
    "mujoco",
    "box2d",
    "stable-baselines3",
    "sb3-contrib",
    "pettingzoo",
    "mpe2",
    "pyboy",
)


class Player(Protocol):
    """A policy at play."""

    def begin(self) -> None: ...

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any: ...

    def gain(self, observation: Any, reward: float) -> float:
        """What a step has brought it."""


class Curve:
    """Mean returns of the latest training episodes, at about fifty moments of the training."""

    def __init__(self, steps: int) -> None:
        self._every = max(1.0, steps / _POINTS)
        self._next = self._every
        self.points: list[tuple[int, float]] = []

    def is_due(self, step: int) -> bool:
        return step >= self._next

    def add(self, step: int, mean_return: float) -> None:
        self.points.append((step, mean_return))
        self._next = (step // self._every + 1) * self._every


Learn = Callable[[Job, Curve], Player]
"""Trains, keeps the curve, and returns the final policy."""


def row_of(job: Job, learn: Learn, num_episodes: int = EPISODES, env: Any = None) -> Row:
    """Train, judge, and write everything down; in `env`, where the player has to know it."""
    task, begun, stamp = job.task, datetime.datetime.now(datetime.UTC), commit()
    settings, curve = task.settings(job.library), Curve(task.steps)
    wall, cpu = time.perf_counter(), time.process_time()
    player = learn(job, curve)
    wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
    machine = fingerprint()
    return Row(
        task=task.name,
        library=job.library,
        seed=job.seed,
        steps=task.steps,
        returns=judge(player, task, job.seed, num_episodes, env),
        curve=curve.points,
        wall_s=wall_s,
        cpu_s=cpu_s,
        settings=settings,
        versions=versions(),
        machine=f"{machine.cpu}, {machine.cores} cores",
        commit=stamp,
        begun=begun.strftime("%Y-%m-%d %H:%M UTC"),
        processor=machine.processor,
        blas=machine.blas,
    )


def judge(player: Player, task: Task, seed: int, num_episodes: int, env: Any = None) -> list[float]:
    """Returns of episodes in an environment of its own, with seeds that no training draws on.

    Where wins are counted, 1 for an episode that was won and 0 for another.
    """
    played = env_of(task) if env is None else env
    try:
        ends = [_play(played, player, evaluation_seed(seed, k)) for k in range(num_episodes)]
    finally:
        played.close()
    if not task.counts_wins:
        return [total for total, _ in ends]
    return [float(task.win in info if task.win else total > 0.0) for total, info in ends]


def env_of(task: Task) -> Any:
    """A new environment of a task, as the engine steps it."""
    kwargs = task.settings("shoal").get("env_kwargs", {})
    return find_env(task.env, kwargs).factories[0]()


def _play(env: Any, player: Player, seed: int) -> tuple[float, dict[str, Any]]:
    """The return of an episode, and its last info."""
    player.begin()
    observation, info = env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
        action = player.act(observation, info)
        observation, reward, terminated, truncated, info = env.step(action)
        total += player.gain(observation, float(reward))
        is_over = bool(terminated or truncated)
    return total, info


# --- stamps -------------------------------------------------------------------------------------


def commit(root: Path = ROOT) -> str:
    """What is checked out, with "-dirty" where something that a row depends on is not as there."""
    try:
        head = _git(root, "rev-parse", "--short=10", "HEAD")
        changed = _git(root, "status", "--porcelain", "--", *_SOURCES)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}-dirty" if changed else head


def _git(root: Path, *words: str) -> str:
    command = ["git", "--no-optional-locks", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def versions() -> dict[str, str]:
    """Of everything that learning depends on and that is installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
