"""Who meets where: contestants, the number of workers each is tried with, and the bound."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from benchmarks.workloads import WORKLOADS, Workload
from shoal.engine.machine import usable_cores
from shoal.measure import BOUND, Job, Record
from shoal.measure.contest import Where
from shoal.measure.rivals import contestants, find

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ENV_COUNTS = (2, 8, 32, 64, 256)
FIELD = [one.name for one in contestants() if not one.only_starts]
"""Everyone who is measured stepping."""
STARTERS = [one.name for one in contestants() if one.only_starts]
"""Those of whom only the start is of interest: the same as another one but for that."""
ONE_EACH = ("shoal thread", "pufferlib mp", "pufferlib mp first-ready")
"""Whose workers may be as many as environments, where these wait: `auto` chooses so many itself."""
WITHOUT_COMMIT = (
    "This copy of Shoal has no git repository, so the record cannot say of which commit it is. "
    "Say it where there is one: SHOAL_COMMIT=$(git describe --always --dirty --abbrev=10)."
)
QUICK_FIELD = [
    name
    for name in FIELD
    if name.split()[0] not in ("tianshou", "torchrl", "envpool") and "thread" not in name
]


def jobs_at(
    workload: Workload, num_envs: int, names: Sequence[str], duration_s: float
) -> Iterator[Job]:
    """The bound and these contestants on one workload."""
    cores = usable_cores()
    bound_workers = num_envs if workload.waits else min(num_envs, cores)
    bound = Job(BOUND, workload.env, num_envs, bound_workers, duration_s)
    yield bound
    for contestant in map(find, names):
        if contestant.family == "native" and workload.name not in ("cartpole", "halfcheetah"):
            continue
        if workload.plays not in contestant.plays:
            continue
        workers = contestant.workers(num_envs, cores)
        if workload.waits and contestant.name in ONE_EACH:
            workers = (*workers, num_envs)
        for num_workers in workers:
            job = replace(bound, contestant=contestant.name, num_workers=num_workers)
            yield replace(job, pause_s=workload.pause_s)


def start_jobs(names: Iterable[str], env_counts: Iterable[int]) -> Iterator[Job]:
    """Only the start, to the end of the first reset."""
    for num_envs in env_counts:
        for name in (one for one in names if "one" in find(one).plays):
            yield Job(name, WORKLOADS["cartpole"].env, num_envs, duration_s=0.0)


def name_of(env: str) -> str:
    """The workload that a job's environment belongs to."""
    known = [workload.name for workload in WORKLOADS.values() if workload.env == env]
    return known[0] if known else env


def as_name(text: str) -> str:
    """The name of a record, as an argument."""
    if not re.fullmatch(r"\w[\w.-]*", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} cannot be part of a file's name. Take letters, digits, '.', '-' and '_'."
        )
    return text


def where(job: Job) -> Where:
    """In the interpreter that has this contestant's package."""
    package = "" if job.contestant == BOUND else find(job.contestant).needs
    python = apart(package) or sys.executable
    return Where(os.fspath(python), (str(ROOT / "src"), str(ROOT)))


def apart(package: str) -> Path | None:
    """The interpreter that is there for this package, .venv-bench-<package>; usually there is none.

    Where there is one for tests beside that package, .venv-<package>, it serves as well.
    """
    folders = (f".venv-bench-{package}", f".venv-{package}") if package else ()
    pythons = (ROOT / folder / "bin" / "python" for folder in folders)
    return next(filter(Path.exists, pythons), None)


def begin(command: Sequence[str], name: str) -> Record:
    """A record that also tells the versions of those who have an interpreter of their own."""
    record = Record.begin(command, name)
    if not record.machine.commit:
        print(WITHOUT_COMMIT, file=sys.stderr)
    packages = record.machine.packages | dict(_versions_apart())
    record.machine = replace(record.machine, packages=packages)
    return record


def _versions_apart() -> Iterator[tuple[str, str]]:
    for package in dict.fromkeys(one.needs for one in contestants()):
        if python := apart(package):
            folders = [os.fspath(one) for one in python.parents[1].glob("lib/*/site-packages")]
            for found in metadata.distributions(name=package, path=folders):
                yield package, found.version
