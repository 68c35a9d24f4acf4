"""What `shoal bench` measures, shows and concludes, for anybody's environment."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence

from shoal.engine.machine import usable_cores
from shoal.measure.job import BOUND, Job, Place
from shoal.measure.rivals import contestants, find
from shoal.measure.session import Contestant
from shoal.measure.summary import Row, at, best, paired_ratio
from shoal.measure.table import (
    FOOTPRINT_HEADERS,
    HEADERS,
    as_text,
    body,
    count,
    footprints,
    is_rival,
    ratio,
    skips,
)

OURS = (
    "shoal auto",
    "shoal serial",
    "shoal thread",
    "shoal process",
    "shoal hybrid",
    "shoal first-ready",
)
_SIMPLE = ("shoal auto", "shoal serial")
_AS_GOOD = 0.95
"""What is simple is recommended where it is so near to the best."""


def installed_rivals() -> list[str]:
    """The names of all rivals whose packages are here."""
    return [one.name for one in contestants() if one.family == "rival" and _is_fit(one)]


def _is_fit(contestant: Contestant) -> bool:
    here = not contestant.needs or importlib.util.find_spec(contestant.needs) is not None
    return here and not contestant.only_starts and "one" in contestant.plays


def plan(
    env: str, num_envs: int, rivals: Sequence[str], duration_s: float, waits: bool = False
) -> Iterator[Job]:
    """The bound, Shoal on each backend, and these rivals, with so many environments.

    Environments that wait are bounded by their number, and not by cores.
    """
    cores = usable_cores()
    yield Job(BOUND, env, num_envs, num_envs if waits else min(num_envs, cores), duration_s)
    for contestant in map(find, [*OURS, *rivals]):
        for num_workers in contestant.workers(num_envs, cores):
            yield Job(contestant.name, env, num_envs, num_workers, duration_s)


def describe(rows: Sequence[Row], place: Place) -> str:
    """A table of one place, and who is missing there."""
    here = at(rows, place)
    lines = [f"{place.env}, {place.num_envs} environments", as_text(HEADERS, body(here))]
    lines += [f"not measured: {one}" for one in skips(here)]
    return "\n".join(lines)


def describe_footprints(rows: Sequence[Row]) -> str:
    """What each takes to start and to keep, where most environments were stepped; or nothing."""
    most = max((row.job.num_envs for row in rows if row.rates), default=0)
    cells = footprints([row for row in rows if row.job.num_envs == most])
    if not cells:
        return ""
    title = f"start (to the end of the first reset) and memory, {most} environments"
    return f"{title}\n{as_text(FOOTPRINT_HEADERS, cells)}"


def conclude(rows: Sequence[Row]) -> str:
    """One line: what to use. Of all numbers of environments that were tried."""
    ours = [row for row in rows if row.job.contestant in OURS]
    fastest = best(ours)
    if fastest is None:
        return "Nothing could be measured."
    good_enough = [row for row in ours if row.steps_per_s >= _AS_GOOD * fastest.steps_per_s]
    chosen = min(good_enough, key=_complexity)
    share = "" if chosen.fraction is None else f", {ratio(chosen.fraction)} of the bound"
    line = f"Use {code(chosen.job)}: {count(chosen.steps_per_s)} steps/s{share}."
    return line + _remark(chosen, best(at(rows, chosen.job.place), is_rival))


def _complexity(row: Row) -> tuple[int, float]:
    name = row.job.contestant
    rank = _SIMPLE.index(name) if name in _SIMPLE else len(_SIMPLE)
    return rank, -row.steps_per_s


def code(job: Job) -> str:
    """The call that makes what was measured."""
    name = job.contestant.removeprefix("shoal ")
    first_ready = name == "first-ready"
    given = [f'"{job.env}"', f"num_envs={job.num_envs}"]
    if name != "auto":
        given.append(f'backend="{"process" if first_ready else name}"')
    if job.num_workers is not None:
        given.append(f"num_workers={job.num_workers}")
    if first_ready:
        given.append(f"batch_size={max(1, job.num_envs // 2)}")
    return f"shoal.make({', '.join(given)})" + " with send and recv" * first_ready


def _remark(ours: Row, rival: Row | None) -> str:
    against = paired_ratio(ours, rival) if rival is not None else None
    if rival is None or against is None:
        return ""
    if against.median >= 1:
        return f" That is {against.median:.2f} times {rival.job.label}, the best rival."
    return f" {rival.job.label} is faster here, by {1 / against.median:.2f} times."
