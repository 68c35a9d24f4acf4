"""Which backend, how many environments and workers: measured on the user's environment and machine.

    probe ──► settings worth trying ──► contest (each in a process of its own) ──► rows ──► verdict

`settings` is pure: what to try. So is `verdict.conclude`: what follows from what was measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from gymnasium.vector import AutoresetMode

from shoal.engine.machine import free_memory_mb, usable_cores
from shoal.engine.probe import Probe, Unprobed, probe
from shoal.measure.contest import Outcome, contest
from shoal.measure.job import BOUND, Job
from shoal.measure.summary import summarise
from shoal.measure.verdict import (
    FIRST_READY,
    HYBRID,
    PROCESS,
    SERIAL,
    THREAD,
    Advice,
    conclude,
    is_uneven,
)
from shoal.vector.choice import Situation, choose
from shoal.vector.make import Faults, make_terms
from shoal.vector.source import resolve

ROUNDS = 2
"""How often everything is measured, in turn: machines drift."""
LOCK_FREE = 0.5
"""From this share of a step on that leaves the interpreter to others, threads are tried."""


Progress = Callable[[int, int, Outcome], None]
"""Told after each measurement: which one, of how many, and what came of it."""


def advise(
    env: str,
    env_counts: Sequence[int] = (),
    *,
    duration_s: float = 0.5,
    rounds: int = ROUNDS,
    progress: Progress = lambda number, total, outcome: None,
) -> Advice:
    """Measure an environment and the few settings that make sense for it; what to use.

    ConfigError where it cannot be stepped at all.
    """
    cores, load = usable_cores(), load_average()
    found = look_at(env)
    jobs = settings(env, found, cores, env_counts or usual_counts(found, cores), duration_s)
    outcomes = []
    for outcome in contest(jobs, rounds):
        outcomes.append(outcome)
        progress(len(outcomes), len(jobs) * rounds, outcome)
    return conclude(env, cores, found, summarise(outcomes), load)


def load_average() -> float:
    """Processes that wanted to run, over the last minute; 0 where nobody counts."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def look_at(env: str) -> Probe | Unprobed:
    """Measure one environment, in a child process."""
    source = resolve(env)
    terms = make_terms(source, "process", AutoresetMode.SAME_STEP, Faults(), None, None)
    return probe(source.factories[0], terms)


# --- what to try -------------------------------------------------------------------------------


def usual_counts(found: Probe | Unprobed, cores: int) -> tuple[int, ...]:
    """Numbers of environments to try: few, some and many for these cores."""
    most = 16 * cores
    if isinstance(found, Probe):
        free_mb = free_memory_mb()
        if free_mb is not None and found.memory_mb > 0:
            most = min(most, int(free_mb / 2 / found.memory_mb))
        if found.step_s > 0.02:  # a batch of many would take longer than it is measured for
            most = min(most, 4 * cores)
        if found.waits:
            most = max(most, 32)
    most = max(2, most)
    counts = {max(2, times * cores) for times in (1, 4, 8)} | {most}
    return tuple(sorted(one for one in counts if one <= most))


def settings(
    env: str,
    found: Probe | Unprobed,
    cores: int,
    env_counts: Iterable[int],
    duration_s: float,
) -> list[Job]:
    """The few settings that make sense for such an environment, and the bound."""
    tried = []
    for num_envs in env_counts:
        for contestant, workers in _worth_trying(found, cores, num_envs):
            tried.append(Job(contestant, env, num_envs, workers, duration_s))
    return list(dict.fromkeys(tried))


def _worth_trying(
    found: Probe | Unprobed, cores: int, num_envs: int
) -> Iterable[tuple[str, int | None]]:
    usual = min(cores, num_envs)
    situation = Situation(num_envs, cores, isolated=True, free_mb=free_memory_mb())
    chosen = choose(found, situation).num_workers
    shares_cores = isinstance(found, Unprobed) or found.waits or found.uses_gpu
    yield BOUND, chosen if shares_cores else usual
    yield SERIAL, 1
    for workers in dict.fromkeys((usual, chosen)):
        yield PROCESS, workers
    if cores > 2 and num_envs >= cores:
        yield PROCESS, cores - 1  # a core for the caller
    if isinstance(found, Unprobed):
        return
    if not found.waits and not found.uses_gpu and usual > 1:
        yield HYBRID, usual
    if (found.lock_free or 0.0) > LOCK_FREE and not found.uses_gpu:
        yield THREAD, chosen
    if is_uneven(found) and num_envs >= 4:
        yield FIRST_READY, chosen
