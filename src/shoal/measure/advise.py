"""Which backend, how many environments and workers: measured on the user's environment and machine.

    probe ──► settings worth trying ──► contest (each in a process of its own) ──► rows ──► advice

`settings` and `conclude` are pure: what to try, and what follows from what was measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gymnasium.vector import AutoresetMode

from shoal.engine.machine import free_memory_mb, usable_cores
from shoal.engine.probe import Probe, Unprobed, probe
from shoal.errors import ConfigError
from shoal.measure.contest import Outcome, contest
from shoal.measure.job import BOUND, Job
from shoal.measure.summary import Row, best, summarise
from shoal.measure.table import count
from shoal.vector.choice import ISOLATION_WORTH, Situation, choose, in_words
from shoal.vector.make import Faults, make_terms
from shoal.vector.source import resolve

ROUNDS = 2
"""How often everything is measured, in turn: machines drift."""
ENOUGH = 0.9
"""Fewer environments are recommended where they reach so much of the best."""
HELPS = 1.1
"""Parallelism helps where it is so many times as fast as one environment after another."""
UNEVEN, UNEVEN_S = 0.5, 100e-6
"""From this spread and length of steps on, first-ready batches are tried."""
BUSY = 0.5
"""From this load for each core on, before anything is measured, the machine is called busy."""
CHEAP_S = 100e-6
"""A step that takes longer is not cheap, whatever else may be the matter."""
LOCK_FREE = 0.5
"""From this share of a step on that leaves the interpreter to others, threads are tried."""
_SERIAL, _THREAD, _PROCESS, _HYBRID = (
    f"shoal {name}" for name in ("serial", "thread", "process", "hybrid")
)
_FIRST_READY = "shoal first-ready"


@dataclass(frozen=True, slots=True)
class Advice:
    """What was measured of an environment, and what follows."""

    env: str
    cores: int
    probe: Probe | Unprobed
    rows: Sequence[Row]
    pick: Row
    """The setting that is recommended."""
    sentences: Sequence[str]

    @property
    def code(self) -> str:
        """One line to copy."""
        return line_of_code(self.pick)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "env": self.env,
            "cores": self.cores,
            "probe": asdict(self.probe),
            "rows": [record_of(row) for row in self.rows],
            "recommended": record_of(self.pick),
            "code": self.code,
            "sentences": list(self.sentences),
        }


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
    counts = {max(2, cores), max(2, 4 * cores), max(2, most)}
    return tuple(sorted(one for one in counts if one <= max(2, most)))


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
    yield BOUND, chosen
    yield _SERIAL, 1
    for workers in dict.fromkeys((usual, chosen)):
        yield _PROCESS, workers
    if cores > 2 and num_envs >= cores:
        yield _PROCESS, cores - 1  # a core for the caller
    if isinstance(found, Unprobed):
        return
    if not found.waits and not found.uses_gpu and usual > 1:
        yield _HYBRID, usual
    if (found.lock_free or 0.0) > LOCK_FREE and not found.uses_gpu:
        yield _THREAD, chosen
    if is_uneven(found) and num_envs >= 4:
        yield _FIRST_READY, chosen


def is_uneven(found: Probe) -> bool:
    """Whether waiting for the slowest of several environments costs more than not to wait."""
    return found.spread > UNEVEN and found.step_s > UNEVEN_S


# --- what follows ------------------------------------------------------------------------------


def conclude(
    env: str, cores: int, found: Probe | Unprobed, rows: Sequence[Row], load: float = 0.0
) -> Advice:
    """What to use, and what there is to say about it; ConfigError where nothing could be run."""
    measured = [row for row in rows if row.rates]
    tried = [row for row in measured if row.job.contestant != BOUND]
    if not tried:
        said = next((row.skipped for row in rows if row.skipped), "nothing could be measured")
        raise ConfigError(f"{env} cannot be stepped: {said}. `shoal check {env}` says more.")
    pick = recommend(tried)
    sentences = list(_sentences(cores, found, tried, pick))
    if load > BUSY * cores:
        sentences.insert(
            0,
            f"The machine was busy with something else (a load of {load:.1f} on {cores} cores "
            "before the first measurement): measure again when it is quiet.",
        )
    return Advice(env, cores, found, rows, pick, sentences)


def recommend(rows: Sequence[Row]) -> Row:
    """The fastest, or one with isolation that is nearly as fast; with no more envs than it takes.

    Worker processes are worth a little: a crash stays in its worker there.
    """
    fastest = best(rows)
    assert fastest is not None
    enough = [row for row in rows if row.steps_per_s >= ENOUGH * fastest.steps_per_s]
    num_envs = min(row.job.num_envs for row in enough)
    here = [row for row in rows if row.job.num_envs == num_envs]
    pick = best(here)
    isolated = best(here, lambda row: row.job.contestant in (_PROCESS, _FIRST_READY))
    assert pick is not None
    if isolated is not None and isolated.steps_per_s * ISOLATION_WORTH >= pick.steps_per_s:
        return isolated
    return pick


def line_of_code(row: Row) -> str:
    """How to make these environments."""
    job = row.job
    arguments = [repr(job.env), f"num_envs={job.num_envs}"]
    if job.contestant == _FIRST_READY:
        arguments.append(f"num_workers={job.num_workers}, batch_size={max(1, job.num_envs // 2)}")
        return f"envs = shoal.make({', '.join(arguments)})  # send and recv"
    backend = backend_of(row)
    arguments.append(f"backend={backend!r}")
    if backend != "serial" and job.num_workers is not None:
        arguments.append(f"num_workers={job.num_workers}")
    return f"envs = shoal.make({', '.join(arguments)})"


def backend_of(row: Row) -> str:
    """The backend of a row, by its own name; "process" for first-ready batches."""
    name = row.job.contestant
    return "process" if name == _FIRST_READY else name.removeprefix("shoal ")


def cores_used(row: Row) -> float | None:
    """Cores at work, all processes together."""
    cpu_s, rate = row.middle.cpu_s_per_million, row.middle.steps_per_s
    return None if cpu_s is None or rate is None else cpu_s * rate / 1e6


def record_of(row: Row) -> dict[str, Any]:
    """A row for JSON."""
    return {
        "backend": BOUND if row.job.contestant == BOUND else backend_of(row),
        "first_ready": row.job.contestant == _FIRST_READY,
        "num_envs": row.job.num_envs,
        "num_workers": row.job.num_workers,
        "steps_per_s": row.middle.steps_per_s,
        "fraction_of_bound": row.fraction,
        "cores_used": cores_used(row),
        "memory_mb": row.middle.total_mb,
        "start_s": row.middle.start_s,
        "skipped": row.skipped,
    }


def _sentences(
    cores: int, found: Probe | Unprobed, rows: Sequence[Row], pick: Row
) -> Iterable[str]:
    if isinstance(found, Unprobed):
        yield f"Nothing is known of a single environment, since {found.why}."
    at_pick = [row for row in rows if row.job.num_envs == pick.job.num_envs]
    serial = best(at_pick, lambda row: row.job.contestant == _SERIAL)
    process = best(at_pick, lambda row: row.job.contestant == _PROCESS)
    if serial is not None and process is not None:
        yield _compared(serial, process)
    if serial is not None:
        yield from _when_it_does_not_help(cores, found, serial, best(at_pick) or serial)
    if isinstance(found, Probe):
        yield from _about(found)
    if pick.middle.p50_s is not None:
        yield (
            f"A step of all {pick.job.num_envs} takes {in_words(pick.middle.p50_s)}. If your "
            "policy takes longer than that between two steps, you are bound by the policy, and no "
            "setting of workers will help; envs.stats()['bottleneck'] tells."
        )


def _compared(serial: Row, process: Row) -> str:
    """Simulated against true parallelism, in one sentence."""
    ratio = process.steps_per_s / serial.steps_per_s
    parts = [f"{count(process.steps_per_s)} against {count(serial.steps_per_s)} steps/s"]
    used = cores_used(process), cores_used(serial)
    if used[0] is not None and used[1] is not None:
        parts.append(f"{used[0]:.1f} against {used[1]:.1f} cores at work")
    memory = process.middle.total_mb, serial.middle.total_mb
    if memory[0] is not None and memory[1] is not None:
        parts.append(f"{memory[0]:.0f} against {memory[1]:.0f} MB")
    start = process.middle.start_s, serial.middle.start_s
    if start[0] is not None and start[1] is not None:
        parts.append(f"{start[0]:.2f} against {start[1]:.2f} s to start")
    return (
        f"True parallelism (process) is {ratio:.2f} times as fast as simulated (serial) with "
        f"{serial.job.num_envs} environments: {', '.join(parts)}."
    )


def _when_it_does_not_help(
    cores: int, found: Probe | Unprobed, serial: Row, fastest: Row
) -> Iterable[str]:
    if fastest.steps_per_s >= HELPS * serial.steps_per_s:
        return
    if cores == 1 and not (isinstance(found, Probe) and found.waits):
        yield "Parallelism does not help here: only one core may be used (`shoal doctor` says why)."
    elif isinstance(found, Probe) and found.work_s < CHEAP_S and not found.uses_gpu:
        yield (
            f"Parallelism does not help here: a step takes {in_words(found.work_s)}, about as long "
            "as it takes to hand it to somebody else. Have more environments, or do more in each "
            "step."
        )
    else:
        yield "Parallelism does not help here."


def _about(found: Probe) -> Iterable[str]:
    if found.uses_gpu:
        yield (
            "The environment uses the GPU itself. Every worker process has a context of its own "
            "there, and all share its time: run it serially or with few workers."
        )
    if found.waits:
        yield (
            f"The environment mostly waits ({in_words(found.step_s)} a step, at work for "
            f"{in_words(found.cpu_s)} of it): more workers than cores pay."
        )
    if is_uneven(found):
        yield (
            f"Its steps differ in length (spread {found.spread:.1f}): where all step together, all "
            "wait for the slowest; send and recv (`batch_size`) do not."
        )
