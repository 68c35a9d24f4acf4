"""Rows of the results: one training each, one JSON file each, whole or not there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.tasks import Job
from benchmarks.plan import RESULTS
from shoal.errors import ConfigError
from shoal.monitor import whole

FOLDER = RESULTS / "learning"


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one training."""

    task: str
    library: str
    seed: int
    steps: int
    returns: Sequence[float]
    """Of the final policy's episodes, drawn without chance."""
    curve: Sequence[tuple[int, float]]
    """Steps, and the mean return of the latest training episodes then."""
    wall_s: float
    """Of the training; judging comes after it."""
    cpu_s: float
    settings: dict[str, Any]
    versions: dict[str, str]
    machine: str
    commit: str
    begun: str
    processor: str = ""
    """By whose kernels the numbers came about: another one's differ in their last bits."""
    blas: str = ""

    @property
    def score(self) -> float:
        return float(np.mean(self.returns))

    @property
    def score_std(self) -> float:
        return float(np.std(self.returns))

    def to_json(self) -> str:
        """One entry a line."""
        told = {"score": self.score, "score_std": self.score_std, **asdict(self)}
        lines = [f"{json.dumps(key)}: {json.dumps(_rounded(one))}" for key, one in told.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> Row:
        told = json.loads(text)
        del told["score"], told["score_std"]
        told["curve"] = [(step, mean_return) for step, mean_return in told["curve"]]
        return cls(**told)


def path_of(folder: Path, job: Job) -> Path:
    return folder / f"{job}.json"


def is_clean(commit: str) -> bool:
    """Whether a row with this stamp can be made again from what is checked out there."""
    return commit != "unknown" and not commit.endswith("-dirty")


def check_clean(commit: str) -> None:
    """ConfigError where nobody could say what a row was made by."""
    if not is_clean(commit):
        raise ConfigError(
            f"rows would be stamped {commit!r}, so that nobody could make them again: expected a "
            "commit of a tree without changes. Commit what was changed, or take --allow-dirty for "
            "rows that are not to be kept."
        )


def write(folder: Path, job: Job, row: Row, allow_dirty: bool = False) -> None:
    """Keep one; ConfigError for what an unclean tree has made, unless that is allowed."""
    if not allow_dirty:
        check_clean(row.commit)
    folder.mkdir(parents=True, exist_ok=True)
    whole.write(path_of(folder, job), [row.to_json().encode()])


def read(folder: Path, job: Job) -> Row | None:
    """The row of a job; None where there is none, or only one of other settings or steps."""
    path = path_of(folder, job)
    try:
        row = Row.from_json(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as problem:
        raise ConfigError(
            f"{path} is no row of the results: {problem!r}. Remove it, and it is made again."
        ) from problem
    told = job.task.settings(job.library)
    return row if (row.steps, row.settings) == (job.task.steps, told) else None


def _rounded(value: Any) -> Any:
    """Six digits: more are noise."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return value
