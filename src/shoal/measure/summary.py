"""From the outcomes of a contest to rows of a table: medians, spreads, ratios within the run."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

from shoal.measure.contest import Outcome
from shoal.measure.job import BOUND, Figures, Job, Place

_DISTURBED_CPU = 0.2
_TOLERATED = 0.05
"""So many measurements may be disturbed before it is worth telling."""
_NUMBERS = [field.name for field in fields(Figures) if field.name != "note"]


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle, the lowest and the highest of several rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant at one place, over all rounds."""

    job: Job
    rates: dict[int, float]
    """Steps per second, by round."""
    middle: Figures
    """The median of each figure."""
    skipped: str = ""
    """Why figures are missing, be it of one round."""
    fraction: float | None = None
    """Of the bound, measured in the same rounds."""

    @property
    def spread(self) -> Spread | None:
        return Spread.of(list(self.rates.values())) if self.rates else None

    @property
    def steps_per_s(self) -> float:
        """The median; 0.0 only for who was skipped, so that the best can be found."""
        return self.middle.steps_per_s or 0.0


def cores_used(row: Row) -> float | None:
    """Cores at work, all processes together."""
    cpu_s, rate = row.middle.cpu_s_per_million, row.middle.steps_per_s
    return None if cpu_s is None or rate is None else cpu_s * rate / 1e6


def summarise(outcomes: Iterable[Outcome]) -> list[Row]:
    """One row for each job, in the order of their first outcome."""
    by_job: dict[Job, list[Outcome]] = {}
    for outcome in outcomes:
        by_job.setdefault(outcome.job, []).append(outcome)
    rows = [_row(job, of_job) for job, of_job in by_job.items()]
    bounds = {row.job.place: row for row in rows if row.job.contestant == BOUND}
    return [_with_fraction(row, bounds.get(row.job.place)) for row in rows]


def at(rows: Iterable[Row], place: Place) -> list[Row]:
    """The rows of one place."""
    return [row for row in rows if row.job.place == place]


def best(rows: Iterable[Row], matches: Callable[[Row], bool] = lambda row: True) -> Row | None:
    """The fastest of those that match; None if nobody was measured."""
    fit = [row for row in rows if row.rates and matches(row)]
    return max(fit, key=lambda row: row.steps_per_s, default=None)


def paired_ratio(ours: Row, theirs: Row) -> Spread | None:
    """How many times as fast, round by round: what a drifting machine says least wrongly."""
    rounds = ours.rates.keys() & theirs.rates.keys()
    ratios = [ours.rates[number] / theirs.rates[number] for number in rounds]
    return Spread.of(ratios) if ratios else None


def disturbance(outcomes: Iterable[Outcome]) -> str:
    """A sentence about what else ran on the machine; empty if nothing worth telling did."""
    shares = [one.figures.others_cpu for one in outcomes if one.figures]
    known = [share for share in shares if share is not None]
    disturbed = [share for share in known if share > _DISTURBED_CPU]
    if len(disturbed) <= len(known) * _TOLERATED:
        return ""
    return (
        f"Other programs used more than {_DISTURBED_CPU:g} of a core in {len(disturbed)} of "
        f"{len(known)} measurements ({statistics.median(disturbed):.1f} cores in the middle): "
        "figures are too low, and ratios uncertain."
    )


def _row(job: Job, outcomes: Sequence[Outcome]) -> Row:
    measured = {one.round: one.figures for one in outcomes if one.figures is not None}
    rates = {
        number: figures.steps_per_s
        for number, figures in measured.items()
        if figures.steps_per_s is not None
    }
    skipped = next((one.skipped for one in outcomes if one.skipped), "")
    if skipped and measured:
        skipped = f"in one round: {skipped}"
    return Row(job, rates, _middle(list(measured.values())), skipped)


def _middle(figures: Sequence[Figures]) -> Figures:
    medians = {}
    for name in _NUMBERS:
        values = [value for one in figures if (value := getattr(one, name)) is not None]
        medians[name] = statistics.median(values) if values else None
    return Figures(**medians, note=_notes([one.note for one in figures if one.note]))


def _notes(notes: Sequence[str]) -> str:
    """What was chosen; how often, where rounds chose differently."""
    chosen = Counter(notes).most_common()
    if len(chosen) == 1:
        return chosen[0][0]
    return "; ".join(f"{times} of {len(notes)} times {note}" for note, times in chosen)


def _with_fraction(row: Row, bound: Row | None) -> Row:
    ratio = paired_ratio(row, bound) if bound is not None and row is not bound else None
    if ratio is None:
        return row
    return Row(row.job, row.rates, row.middle, row.skipped, ratio.median)
