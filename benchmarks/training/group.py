"""Those that were measured in turn, and the cells that all tables have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.plan import name_of
from benchmarks.training.plan import OURS, SB3, SHOAL
from benchmarks.training.task import Answer, Numbers, middle
from shoal.measure import Row, Spread, best, summarise
from shoal.measure.job import Job
from shoal.measure.table import NONE

SHARES = ("stepping", "inference", "learning")


@dataclass(frozen=True, slots=True)
class Group:
    """Those that were measured in turn."""

    answers: Sequence[Answer]
    rows: Sequence[Row]

    @classmethod
    def of(cls, answers: Sequence[Answer]) -> Group:
        return cls(answers, summarise(one.outcome for one in answers))

    @property
    def title(self) -> str:
        task = self.answers[0].task
        return f"{name_of(task.env)}, {task.n_envs} environments"

    def middle(self, job: Job) -> Numbers:
        return middle(self.of_job(job))

    def of_job(self, job: Job) -> list[Answer]:
        return [one for one in self.answers if one.task.job == job and not one.skipped]

    def row(self, contestant: str) -> Row | None:
        return best(self.rows, lambda row: row.job.contestant == contestant)

    def ours(self) -> Row | None:
        """Shoal as it chooses by itself; else at its best."""
        chosen = self.row(OURS)
        return chosen or best(self.rows, lambda row: row.job.contestant in SHOAL)

    def rival(self) -> Row | None:
        """Stable-Baselines3 at its best."""
        return best(self.rows, lambda row: row.job.contestant in SB3)

    def skips(self) -> list[str]:
        skipped = [row for row in self.rows if row.skipped]
        return [
            f"{row.job.label}, {row.job.num_envs} environments: {row.skipped}" for row in skipped
        ]

    def fastest_first(self) -> list[Row]:
        return sorted((row for row in self.rows if row.rates), key=lambda row: -row.steps_per_s)


def named(row: Row) -> str:
    """The contestant, and what it has chosen where its name does not say so."""
    note, name = row.middle.note, row.job.contestant
    return name if note in name else f"{name} ({note})"


def between(spread: Spread | None, say: Callable[[float], str]) -> str:
    """The lowest and the highest."""
    return NONE if spread is None else f"{say(spread.low)} to {say(spread.high)}"


def percent(share: float | None) -> str:
    return NONE if share is None else f"{share:.0%}"


def shares(found: Numbers, names: Sequence[str] = SHARES) -> list[str]:
    return [percent(found.get(name)) for name in names]
