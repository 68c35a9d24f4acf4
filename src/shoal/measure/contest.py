"""Contests: each job in a process of its own with a time limit, contestants in turn.

A machine that drifts drifts for everyone: all contestants are measured once, then all of them
again, beginning with another one. Whoever hangs is cut off, whoever cannot says why.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.measure.job import Figures, Job

LIMIT_S = 90.0
"""A measurement that takes longer than this is cut off."""

ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job in one round."""

    job: Job
    round: int
    figures: Figures | None
    skipped: str = ""
    """Why there are no figures."""

    def to_dict(self) -> dict[str, Any]:
        figures = self.figures.to_dict() if self.figures else None
        return {
            "job": asdict(self.job),
            "round": self.round,
            "figures": figures,
            "skipped": self.skipped,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Outcome:
        given = record["figures"]
        figures = None if given is None else Figures(**given)
        return cls(Job(**record["job"]), record["round"], figures, record["skipped"])


@dataclass(frozen=True, slots=True)
class Where:
    """In which interpreter jobs run, and what it finds on its path."""

    python: str = sys.executable
    path: tuple[str, ...] = ()


def contest(
    jobs: Iterable[Job],
    repeats: int = 3,
    *,
    together: Callable[[Job], Hashable] = lambda job: job.place,
    where: Callable[[Job], Where] = lambda job: Where(),
    limit_s: float = LIMIT_S,
) -> Iterator[Outcome]:
    """Measure every job `repeats` times, round robin among those that belong `together`.

    Outcomes come as they are measured. Who was skipped once is not tried again.
    """
    groups: dict[Hashable, list[Job]] = {}
    for job in dict.fromkeys(jobs):
        groups.setdefault(together(job), []).append(job)
    for group in groups.values():
        out: set[Job] = set()
        for number in range(repeats):
            for job in (one for one in _rotated(group, number) if one not in out):
                outcome = run_job(job, number, where(job), limit_s)
                if outcome.skipped:
                    out.add(job)
                yield outcome


def _rotated(jobs: Sequence[Job], by: int) -> list[Job]:
    by %= len(jobs)
    return [*jobs[by:], *jobs[:by]]


def run_job(
    job: Job, number: int = 0, where: Where | None = None, limit_s: float = LIMIT_S
) -> Outcome:
    """Measure one job in a process of its own."""
    where = where or Where()
    command = [where.python, "-m", "shoal.measure.child", job.to_json()]
    answer, ending = run_apart(command, _environment(where), limit_s)
    if answer is None or "skipped" in answer:
        return Outcome(job, number, None, ending if answer is None else answer["skipped"])
    return Outcome(job, number, Figures(**answer))


def run_apart(
    command: Sequence[str], env: Mapping[str, str], limit_s: float
) -> tuple[dict[str, Any] | None, str]:
    """What a process writes into the file that it is told; if nothing, how it ended instead.

    It is told the file and, after that, when it was started. What it leaves behind is ended.
    """
    with tempfile.TemporaryDirectory(prefix="shoal-measure-") as folder:
        result, said = Path(folder, "result.json"), Path(folder, "said.txt")
        with open(said, "wb") as output:
            ending = _run([*command, str(result), str(time.monotonic())], env, output, limit_s)
        if result.exists():
            return json.loads(result.read_text()), ""
        return None, ending or _last_line(said)


def _run(command: Sequence[str], env: Mapping[str, str], output: Any, limit_s: float) -> str:
    """Run the process to its end, or to the limit; says so if it was that."""
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return f"cut off after {limit_s:g} s"
    finally:
        _end(process)
    return ""


def _environment(where: Where) -> dict[str, str]:
    path = [*where.path, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if where.python == sys.executable:
        path += sys.path  # modules that only this process was told of
    joined = os.pathsep.join(dict.fromkeys(folder for folder in path if folder))
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": joined}


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it started: some contestants leave workers behind."""
    if hasattr(os, "killpg"):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    else:
        process.kill()
    process.wait()


def _last_line(said: Path) -> str:
    lines = said.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else "its process died without a word"
