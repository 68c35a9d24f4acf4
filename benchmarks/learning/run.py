"""`make results`: makes the rows that are missing, then the report of all there are.

Each row is a process with one thread; some run at a time. Whenever it is broken off, what was
finished is kept, and the next call goes on with the rest.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.learning import report, rows
from benchmarks.learning.tasks import LIBRARIES, TASKS, Job, jobs
from benchmarks.learning.trial import commit
from benchmarks.plan import ROOT
from shoal.engine.machine import usable_cores
from shoal.errors import ConfigError, suggest
from shoal.monitor import whole

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_ENDING_S = 5.0
"""How long a process may take to end when it is told to."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    all_jobs = list(given.jobs)
    waiting = [job for job in all_jobs if given.again or rows.read(given.rows, job) is None]
    print(f"{len(waiting)} of {len(all_jobs)} rows are to be made", flush=True)
    if waiting and not given.allow_dirty:
        try:
            rows.check_clean(commit())
        except ConfigError as problem:
            sys.exit(str(problem))
    crew = Crew(given.rows, given.jobs_at_once, given.allow_dirty)
    code = 0
    try:
        with _terminated_as_interrupted():
            crew.work(waiting, time.monotonic() + 60.0 * given.minutes)
    except KeyboardInterrupt:
        print("broken off; what was finished is kept, and the next call goes on", flush=True)
        code = 128 + signal.SIGINT
    for job in crew.failed:
        print(f"{job} failed: what it said is above", flush=True)
    if not given.no_report:
        print(report.write(given.rows), flush=True)
    return code or bool(crew.failed)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """While SIGTERM does what Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(slots=True)
class Child:
    """A process, and what it is to make."""

    job: Job
    process: subprocess.Popen[bytes]


class Crew:
    """Processes that make rows, so many at a time."""

    def __init__(self, folder: Path, num_at_once: int, allow_dirty: bool = False) -> None:
        self._folder, self._num_at_once = folder, num_at_once
        self._allow_dirty = allow_dirty
        self._running: list[Child] = []
        self.failed: list[Job] = []

    def work(self, waiting: Iterable[Job], until: float) -> None:
        """Make rows; none is begun after `until` (by the monotonic clock), and none left half."""
        queue, begun, num_done = deque(waiting), time.monotonic(), 0
        total = len(queue)
        try:
            while self._running or (queue and time.monotonic() < until):
                while len(self._running) < self._num_at_once and queue:
                    if time.monotonic() >= until:
                        break
                    self._running.append(self._start(queue.popleft()))
                for child in self._ended():
                    num_done += 1
                    minutes = (time.monotonic() - begun) / 60.0
                    print(f"[{num_done} of {total}, {minutes:.0f} min] {self._line(child)}")
                    sys.stdout.flush()
        finally:
            self._end()

    def _start(self, job: Job) -> Child:
        task = job.task
        words = [task.name, job.library, str(job.seed), "--steps", str(task.steps)]
        words += ["--rows", str(self._folder), "--parent", str(os.getpid())]
        words += ["--allow-dirty"] * self._allow_dirty
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.learning.one", *words],
            cwd=ROOT,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which ends the others
        )
        return Child(job, process)

    def _ended(self) -> Iterator[Child]:
        """Those that have ended by now, after a moment's wait."""
        time.sleep(0.1)
        ended = [child for child in self._running if child.process.poll() is not None]
        for child in ended:
            self._running.remove(child)
            if child.process.returncode:
                self.failed.append(child.job)
            yield child

    def _line(self, child: Child) -> str:
        if child.process.returncode:
            return f"{child.job}: ended with {child.process.returncode}"
        row = rows.read(self._folder, child.job)
        if row is None:
            return f"{child.job}: made, but its settings have changed meanwhile"
        return f"{child.job}: {row.score:.1f} in {row.wall_s:.0f} s"

    def _end(self) -> None:
        for child in self._running:
            child.process.terminate()
        for child in self._running:
            try:
                child.process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
        self._running.clear()
        if self._folder.is_dir():
            whole.sweep(self._folder)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.run", description=__doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", default=list(TASKS), metavar="NAME", help=f"of {', '.join(TASKS)}")
    add(
        "--libraries", nargs="+", default=list(LIBRARIES), metavar="NAME", help=", ".join(LIBRARIES)
    )
    add("--seeds", type=int, metavar="N", help="seeds of every task (default: 10, MuJoCo 3)")
    add("--jobs", type=int, default=usable_cores(), metavar="K", help="rows made at a time")
    add("--minutes", type=float, default=float("inf"), help="begin no row after so many")
    add("--steps", type=int, metavar="N", help="for a try: with --rows, in another folder")
    add("--rows", type=Path, default=rows.FOLDER, help="folder of the rows")
    add("--allow-dirty", action="store_true", help="make rows of a tree with changes, too")
    add("--again", action="store_true", help="make rows that are there once more")
    add("--no-report", action="store_true", help="leave docs/results.md as it is")
    given = parser.parse_args(arguments)
    for kind, asked, there in (
        ("task", given.tasks, TASKS),
        ("library", given.libraries, LIBRARIES),
    ):
        for name in asked:
            if name not in there:
                parser.error(f"there is no {kind} {name!r}. {suggest(name, there)}")
    if given.steps is not None:
        if given.rows == rows.FOLDER:
            parser.error("--steps is for a try: say with --rows which other folder takes its rows.")
        given.no_report = given.allow_dirty = True
    chosen = [TASKS[name] for name in TASKS if name in given.tasks]
    if given.steps is not None:
        chosen = [replace(task, steps=given.steps) for task in chosen]
    given.jobs_at_once, given.jobs = given.jobs, jobs(chosen, given.libraries, given.seeds)
    return given


if __name__ == "__main__":
    sys.exit(main())
