"""What follows from what was measured: a setting to use, and what there is to say about it.

Pure functions of rows. What is said of parallelism is said of the very rows that are recommended
from, by the same thresholds, so words and recommendation cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from shoal.engine.probe import Probe, Unprobed
from shoal.errors import ConfigError
from shoal.measure.comparison import Aspect, compare
from shoal.measure.job import BOUND
from shoal.measure.summary import Row, best, cores_used
from shoal.vector.choice import GPU_WORKERS, in_words

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
SERIAL, THREAD, PROCESS, HYBRID, FIRST_READY = (
    f"shoal {name}" for name in ("serial", "thread", "process", "hybrid", "first-ready")
)
ISOLATED = (PROCESS, FIRST_READY)
"""A crash stays in its worker there."""


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
    comparison: Sequence[Aspect]
    """Simulated parallelism beside true; empty where one of them could not be measured."""

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
            "comparison": [one._asdict() for one in self.comparison],
        }


def conclude(
    env: str, cores: int, found: Probe | Unprobed, rows: Sequence[Row], load: float = 0.0
) -> Advice:
    """What to use, and what there is to say about it; ConfigError where nothing could be run."""
    tried = [row for row in rows if row.rates and row.job.contestant != BOUND]
    if not tried:
        said = next((row.skipped for row in rows if row.skipped), "nothing could be measured")
        raise ConfigError(f"{env} cannot be stepped: {said}. `shoal check {env}` says more.")
    pick = recommend(tried)
    here = [row for row in tried if row.job.num_envs == pick.job.num_envs]
    serial, process = _best_of(here, SERIAL), _best_of(here, PROCESS)
    comparison = compare(serial, process, found) if serial and process else ()
    sentences = [*_about_load(load, cores), *_sentences(cores, found, here, pick)]
    return Advice(env, cores, found, rows, pick, sentences, comparison)


def recommend(rows: Sequence[Row]) -> Row:
    """The fastest, with no more environments than it takes; serial where parallelism does not help.

    Isolation is no reason to take a slower one in silence: what it costs is said in words.
    """
    fastest = best(rows)
    assert fastest is not None
    enough = [row for row in rows if row.steps_per_s >= ENOUGH * fastest.steps_per_s]
    num_envs = min(row.job.num_envs for row in enough)
    here = [row for row in rows if row.job.num_envs == num_envs]
    pick, serial = best(here), _best_of(here, SERIAL)
    assert pick is not None
    return pick if serial is None or helps(pick, serial) else serial


def helps(row: Row, serial: Row) -> bool:
    """Whether it is clearly faster than one environment after another."""
    return row.steps_per_s >= HELPS * serial.steps_per_s


def policy_limit_s(row: Row, serial: Row) -> float | None:
    """From this time on that a policy takes for a batch, parallelism stops paying; None: always.

    With a policy of `p` seconds a batch takes p + t instead of t, and

        p + t_serial = HELPS (p + t)        where p = (t_serial - HELPS t) / (HELPS - 1)
    """
    if not helps(row, serial):
        return None
    batch_s, serial_s = (one.job.num_envs / one.steps_per_s for one in (row, serial))
    return (serial_s - HELPS * batch_s) / (HELPS - 1)


def is_uneven(found: Probe) -> bool:
    """Whether waiting for the slowest of several environments costs more than not to wait."""
    return found.spread > UNEVEN and found.step_s > UNEVEN_S


# --- a row ------------------------------------------------------------------------------------


def line_of_code(row: Row) -> str:
    """How to make these environments."""
    call = call_of(row)
    return f"envs = {call}  # send and recv" if _is_first_ready(row) else f"envs = {call}"


def call_of(row: Row) -> str:
    """The call of `shoal.make` that makes what was measured."""
    job = row.job
    arguments = [repr(job.env), f"num_envs={job.num_envs}"]
    if _is_first_ready(row):
        arguments.append(f"num_workers={job.num_workers}, batch_size={max(1, job.num_envs // 2)}")
        return f"shoal.make({', '.join(arguments)})"
    backend = backend_of(row)
    arguments.append(f"backend={backend!r}")
    if backend != "serial" and job.num_workers is not None:
        arguments.append(f"num_workers={job.num_workers}")
    return f"shoal.make({', '.join(arguments)})"


def backend_of(row: Row) -> str:
    """The backend of a row, by its own name; "process" for first-ready batches."""
    return "process" if _is_first_ready(row) else row.job.contestant.removeprefix("shoal ")


def record_of(row: Row) -> dict[str, Any]:
    """A row for JSON."""
    return {
        "backend": BOUND if row.job.contestant == BOUND else backend_of(row),
        "first_ready": _is_first_ready(row),
        "num_envs": row.job.num_envs,
        "num_workers": row.job.num_workers,
        "steps_per_s": row.middle.steps_per_s,
        "fraction_of_bound": row.fraction,
        "cores_used": cores_used(row),
        "memory_mb": row.middle.total_mb,
        "gpu_processes": row.middle.gpu_processes,
        "gpu_mb": row.middle.gpu_mb,
        "start_s": row.middle.start_s,
        "skipped": row.skipped,
    }


def _is_first_ready(row: Row) -> bool:
    return row.job.contestant == FIRST_READY


def _best_of(rows: Iterable[Row], *contestants: str) -> Row | None:
    return best(rows, lambda row: row.job.contestant in contestants)


def _workers(row: Row) -> int:
    return row.job.num_workers or 1


def _times(row: Row, other: Row) -> str:
    return f"{row.steps_per_s / other.steps_per_s:.2f} times"


# --- in words ---------------------------------------------------------------------------------


def _about_load(load: float, cores: int) -> Iterable[str]:
    if load > BUSY * cores:
        yield (
            f"The machine was busy with something else (a load of {load:.1f} on {cores} cores "
            "before the first measurement): measure again when it is quiet."
        )


def _sentences(
    cores: int, found: Probe | Unprobed, here: Sequence[Row], pick: Row
) -> Iterable[str]:
    """Of what was tried with as many environments as are recommended."""
    if isinstance(found, Unprobed):
        yield f"Nothing is known of a single environment, since {found.why}."
    serial, process = _best_of(here, SERIAL), _best_of(here, PROCESS)
    if serial and process:
        yield (
            f"True parallelism (process) is {_times(process, serial)} as fast as simulated "
            f"(serial) with {pick.job.num_envs} environments."
        )
    if pick is serial and len(here) > 1:
        yield _does_not_help(cores, found, serial, best(here) or serial)
    if isinstance(found, Probe):
        yield from _about(cores, found, here, pick)
    yield from _about_isolation(here, pick)
    yield from _about_the_policy(pick, serial)


def _does_not_help(cores: int, found: Probe | Unprobed, serial: Row, fastest: Row) -> str:
    if cores == 1 and not (isinstance(found, Probe) and found.waits):
        why = "only one core may be used (`shoal doctor` says why)"
    elif isinstance(found, Probe) and found.work_s < CHEAP_S and not found.uses_gpu:
        why = (
            f"a step takes {in_words(found.work_s)}, about as long as it takes to hand it to "
            "somebody else. Have more environments, or do more in each step"
        )
    else:
        why = "nothing that was tried is clearly faster than one environment after another"
    if fastest is not serial:
        why += f" (the fastest, {fastest.job.label}, is {_times(fastest, serial)} as fast)"
    return f"Parallelism does not help here: {why}."


def _about(cores: int, found: Probe, here: Sequence[Row], pick: Row) -> Iterable[str]:
    if found.uses_gpu:
        yield _about_gpu(pick)
    if found.waits:
        yield _about_waiting(cores, found, pick)
    if is_uneven(found):
        yield _about_stragglers(found, here)


def _about_gpu(pick: Row) -> str:
    said = (
        "The environment uses the GPU itself. Every worker process has a context of its own "
        "there, and all share its time: "
    )
    workers = _workers(pick)
    if workers <= GPU_WORKERS:
        return said + "run it serially or with few workers."
    return said + f"that {workers} workers are the fastest takes its memory {workers} times."


def _about_waiting(cores: int, found: Probe, pick: Row) -> str:
    said = (
        f"The environment mostly waits ({in_words(found.step_s)} a step, at work for "
        f"{in_words(found.cpu_s)} of it)"
    )
    if _workers(pick) > cores:
        return f"{said}: more workers than cores pay."
    if _workers(pick) > 1:
        return f"{said}: more workers than cores were not faster here."
    return f"{said}, but waiting side by side was not clearly faster here."


def _about_stragglers(found: Probe, here: Sequence[Row]) -> str:
    said = (
        f"Its steps differ in length (spread {found.spread:.1f}): where all step together, all "
        "wait for the slowest; send and recv (`batch_size`) do not"
    )
    ready = _best_of(here, FIRST_READY)
    together = best(here, lambda row: not _is_first_ready(row))
    if ready is None or together is None:
        return f"{said}."
    return f"{said}, and are {_times(ready, together)} as fast as the best that does."


def _about_isolation(here: Sequence[Row], pick: Row) -> Iterable[str]:
    if pick.job.contestant == THREAD:
        yield (
            "Threads step several environments of one process at the same time: their libraries "
            "must be made for that."
        )
    isolated = _best_of(here, PROCESS)
    if isolated is None or pick.job.contestant in ISOLATED:
        return
    yield (
        f"A crash can end your program there. If it must not: {call_of(isolated)} keeps it to one "
        f"worker, and is {_times(isolated, pick)} as fast."
    )


def _about_the_policy(pick: Row, serial: Row | None) -> Iterable[str]:
    batch_s = pick.job.num_envs / pick.steps_per_s
    yield (
        f"A step of all {pick.job.num_envs} takes {in_words(batch_s)}. If your policy takes longer "
        "than that between two steps, you are bound by the policy; envs.stats()['bottleneck'] "
        "tells."
    )
    limit_s = policy_limit_s(pick, serial) if serial is not None else None
    if limit_s is not None:
        yield (
            f"With a policy of {in_words(limit_s)} or more for each batch of them, what is "
            f"recommended makes the whole less than {HELPS:g} times as fast as serial: no setting "
            "of workers pays from there on."
        )
