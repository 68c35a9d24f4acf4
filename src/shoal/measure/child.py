"""The process that measures one job: `python -m shoal.measure.child JOB RESULT BEGUN`.

It needs the standard library, NumPy, Gymnasium, the contestant's package, and Shoal on the path.
The result is written before anything is closed, so a `close` that hangs costs no figures.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.engine.machine import usable_cores
from shoal.measure import processes
from shoal.measure.job import BOUND, Figures, Job
from shoal.measure.rivals import find
from shoal.measure.session import Contestant, Course, NotPossible, Session

_CLOSE_TIMEOUT_S = 10


def main(arguments: list[str]) -> None:
    job, result = Job.from_json(arguments[0]), Path(arguments[1])
    sessions: list[Session] = []
    try:
        answer: dict[str, Any] = _measure(job, float(arguments[2]), sessions).to_dict()
    except NotPossible as problem:
        answer = {"skipped": str(problem)}
    except Exception as problem:
        answer = {"skipped": f"{type(problem).__name__}: {_first_line(problem)}"}
    _write(result, answer)
    if hasattr(signal, "alarm"):
        signal.alarm(_CLOSE_TIMEOUT_S)
    for session in sessions:
        session.close()


def _measure(job: Job, begun: float, sessions: list[Session]) -> Figures:
    if job.contestant == BOUND:
        return _measure_bound(job)
    contestant = find(job.contestant)
    _check_installed(contestant)
    descriptors = processes.num_descriptors()
    course = Course.named(job.env, job.num_envs, job.num_workers)
    session = contestant.open(course)
    sessions.append(session)
    session.reset()
    figures = Figures(
        start_s=time.monotonic() - begun, start_cpu_s=_cpu_so_far_s(), note=session.note
    )
    return _footprint(_step(session, job, figures), descriptors)


def _measure_bound(job: Job) -> Figures:
    from shoal.measure.bound import measure_bound

    num_processes = job.num_workers or min(job.num_envs, usable_cores())
    rate = measure_bound(Course.named(job.env, job.num_envs), num_processes, job.duration_s)
    return Figures(steps_per_s=rate, note=f"{num_processes} processes")


def _check_installed(contestant: Contestant) -> None:
    if contestant.needs and importlib.util.find_spec(contestant.needs) is None:
        raise NotPossible(f"{contestant.needs} is not installed")


def _step(session: Session, job: Job, figures: Figures) -> Figures:
    if not job.duration_s:
        return figures
    from shoal.measure.timing import sample_actions, time_pauses, time_steps

    sampled = sample_actions(session.action_space, job.num_envs)
    actions = [session.prepare(one) for one in sampled]
    timing = time_steps(session, actions, job.duration_s, job.warmup_s)
    cpu_s = timing.cpu_s
    figures = replace(
        figures,
        steps_per_s=timing.steps_per_s,
        cpu_s_per_million=None if cpu_s is None else cpu_s / max(timing.steps, 1) * 1e6,
        p50_s=timing.p50_s,
        p99_s=timing.p99_s,
        others_cpu=timing.others_cpu,
    )
    if not job.pause_s:
        return figures
    pauses = time_pauses(session, actions, job.pause_s)
    num_workers = len(processes.leaves(processes.descendants()))
    each = None if pauses.workers_cpu is None else pauses.workers_cpu / max(num_workers, 1)
    return replace(figures, pause_cpu=each, wake_s=pauses.wake_s)


def _footprint(figures: Figures, descriptors_before: int | None) -> Figures:
    below = processes.descendants()
    num_workers = len(processes.leaves(below))
    own_mb, now = processes.memory_mb(os.getpid()), processes.num_descriptors()
    below_mb = sum(processes.memory_mb(pid) or 0.0 for pid in below)
    on_gpu = processes.gpu_users([os.getpid(), *below])
    return replace(
        figures,
        num_processes=len(below),
        worker_mb=below_mb / num_workers if num_workers else None,
        total_mb=None if own_mb is None else own_mb + below_mb,
        descriptors=None if now is None else now - (descriptors_before or 0),
        gpu_processes=len(on_gpu) or None,
        gpu_mb=processes.gpu_mb(on_gpu) if on_gpu else None,
    )


def _cpu_so_far_s() -> float | None:
    """Of this process since its start, and of those below it, also of those already gone."""
    below = processes.cpu_s(processes.descendants())
    gone = os.times()
    if below is None:
        return None
    return time.process_time() + below + gone.children_user + gone.children_system


def _write(result: Path, answer: dict[str, Any]) -> None:
    """All or nothing: whoever reads it may come at any moment."""
    part = result.with_suffix(".part")
    part.write_text(json.dumps(answer))
    part.replace(result)


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), "")


if __name__ == "__main__":
    main(sys.argv[1:])
