"""What the targets need measured: who, on what, with how many environments.

Each place has those of ours that a target asks about there, and the rivals they are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec

from benchmarks import plan
from benchmarks.plan import jobs_at
from benchmarks.workloads import WORKLOADS
from shoal.engine.machine import free_memory_mb, usable_cores
from shoal.measure import BOUND, Job
from shoal.measure.rivals import find

SMALL_CORES = 4
"""Up to so many the column for small machines holds."""

SERIAL_RIVALS = ("gymnasium sync", "sb3 dummy", "pufferlib serial")
PIPE_RIVALS = (
    "gymnasium async",
    "sb3 subproc",
    "tianshou shmem",
    "tianshou first-ready",
    "torchrl parallel",
)
FIRST_READY_RIVALS = ("tianshou first-ready", "pufferlib mp first-ready")
VIEWS = ("gymnasium sync views", "gymnasium async views")
WAITING_RIVALS = ("gymnasium async", "sb3 subproc", *FIRST_READY_RIVALS)
CEILING = "envpool"
LOCK_STEP = ("shoal auto", "shoal process", "shoal hybrid")
CHEAP = ("empty", "pixels-84", "pixels-210", "cartpole")
FIRST_READY = ("shoal first-ready", "shoal first-ready hybrid", "shoal two groups")
GROWING = ("shoal process", "shoal hybrid")
GROWTH = (64, 1024)
STARTING = ("shoal auto", *GROWING)
SPAWNING = "gymnasium async spawn"
IMPORTING = "sb3 subproc default"
LARGEST_START, LARGEST_START_MB = (IMPORTING, 64), 12 * 1024.0
"""Every worker of it imports torch: 64 of them take minutes of a small machine, and gigabytes."""
STARTS = {64: (SPAWNING, IMPORTING), 8: (SPAWNING, IMPORTING)}
"""Whose start ours is compared with, at how many environments."""
TEAM = ("shoal team auto", "shoal team process", "shoal team hybrid")
INFOS = (("empty", "infos"), ("work-50us", "infos-50us"))
EVERYWHERE = ("shoal auto", "shoal serial")
MORE_OF_OURS = {
    "work-50us": (*GROWING, *FIRST_READY),
    "work-500us": (*GROWING, *FIRST_READY),
    "uneven": ("shoal process", "shoal first-ready"),
    "pixels-84": ("shoal auto views",),
    "pixels-210": ("shoal auto views",),
    "cartpole": GROWING,
    "halfcheetah": ("shoal hybrid",),
    "waiting": ("shoal auto first-ready", "shoal thread"),
    "socket": ("shoal auto first-ready", "shoal thread"),
    "spread": TEAM,
}
"""Beside those that are measured everywhere: what targets ask for, and what `auto` leaves out."""
NAMED = {
    "work-50us": ("pufferlib mp first-ready",),
    "work-500us": ("pufferlib mp first-ready",),
    "uneven": FIRST_READY_RIVALS,
    "waiting": WAITING_RIVALS,
    "socket": WAITING_RIVALS,
}
"""Rivals that are asked about there in so many words, beside those that are met everywhere."""
UNASKED = ("infos-50us", "pauses", "gameboy-4", "gameboy-24", "connect-four")
"""Measured elsewhere: below, or by a command of their own (`make bench-gameboy`, `bench-teams`)."""
PACKAGES = {"spread": ("mpe2", "pettingzoo")}
"""What is measured only where it is installed (`make bench-teams` does so)."""
WORK = ("work-50us", "work-500us")
GROUPED = (64, 256)
"""With so many environments work is measured in first-ready batches and in groups, too ..."""
IN_PARTS = (*GROWING, *FIRST_READY, "pufferlib mp first-ready")
"""... of these."""
PAUSING_RIVALS = (
    "gymnasium async",
    "sb3 subproc",
    "pufferlib mp",
    "tianshou shmem",
    "torchrl parallel",
)
"""What do their workers burn while nobody steps?"""
RIVALS = [
    name
    for name in plan.QUICK_FIELD
    if not name.startswith("shoal") and name not in (*VIEWS, *FIRST_READY_RIVALS)
]


def groups(full: bool, duration_s: float, rivals: Sequence[str] = RIVALS) -> Iterator[list[Job]]:
    """Jobs that are measured together, round robin."""
    cores = usable_cores()
    for name in WORKLOADS:
        if name not in UNASKED and all(map(find_spec, PACKAGES.get(name, ()))):
            for num_envs in _counts(name, full):
                field = plan.FIELD if full else _field(name, num_envs, rivals)
                jobs = list(jobs_at(WORKLOADS[name], num_envs, field, duration_s))
                if name == "cartpole" and num_envs >= 32 and cores == 2:
                    # As PufferLib is fastest: its caller spins, and needs the other core.
                    jobs.append(replace(jobs[0], contestant="shoal process", num_workers=1))
                yield jobs
    for name, num_envs, field in _many(full):
        yield list(jobs_at(WORKLOADS[name], num_envs, field, duration_s))
    if cores > SMALL_CORES:
        # PufferLib's workers hold equally many, and its caller needs a core for itself.
        for num_envs in (4 * (cores - 1), 16 * (cores - 1)):
            field = [*LOCK_STEP, "pufferlib mp"]
            yield list(jobs_at(WORKLOADS["cartpole"], num_envs, field, duration_s))
    for pair in INFOS:
        yield [_ours("shoal process", name, 32, duration_s) for name in pair]
    yield [_ours(name, "cartpole", num, duration_s) for name in GROWING for num in GROWTH]
    pausing = jobs_at(WORKLOADS["pauses"], 8, [*GROWING, *PAUSING_RIVALS], duration_s)
    yield [job for job in pausing if job.contestant != BOUND]
    for num_envs in STARTS:
        yield list(plan.start_jobs([*STARTING, *_starters(num_envs, full)], (num_envs,)))


def _many(full: bool) -> Iterator[tuple[str, int, Sequence[str]]]:
    """What is asked for with so many environments per worker, or in all, and by whom."""
    for name, counts, field in (
        ("cartpole", {16 * usable_cores()}, ("shoal hybrid",)),
        *((name, {*GROUPED, 16 * usable_cores()}, IN_PARTS) for name in WORK),
    ):
        for num_envs in sorted(counts - {*_counts(name, full)}):
            yield name, num_envs, field


def _starters(num_envs: int, full: bool) -> Sequence[str]:
    """Whose start ours is compared with; what takes most only with --full, if memory allows."""
    names = plan.STARTERS if full else STARTS[num_envs]
    has_room = (free_memory_mb() or 0.0) >= LARGEST_START_MB
    return [name for name in names if (name, num_envs) != LARGEST_START or (full and has_room)]


def _counts(name: str, full: bool) -> Sequence[int]:
    if full:
        return plan.ENV_COUNTS
    if name in CHEAP:
        return (8, 64)
    if name == "spread":
        return (8, 32)
    # Shares of the bound are asked for with four environments per worker and more.
    return (max(32, 4 * usable_cores()),) if name in WORK else (32,)


def _field(name: str, num_envs: int, rivals: Sequence[str]) -> list[str]:
    """Those of ours that a target asks about here, and rivals; where some are named, these too."""
    ours = (*EVERYWHERE, *MORE_OF_OURS.get(name, ()))
    return list(dict.fromkeys((*ours, *rivals, *_named(name, num_envs))))


def _named(name: str, num_envs: int) -> Sequence[str]:
    """Who is asked about in so many words."""
    views = VIEWS if name in CHEAP else ()
    if name == "cartpole" and num_envs >= 32:
        return (*views, *PIPE_RIVALS, CEILING)
    return (*views, *NAMED.get(name, ()))


def rivals_at(name: str, num_envs: int) -> list[str]:
    """Who has to be there before Shoal can be said to be ahead of its rivals."""
    if num_envs not in {*_counts(name, full=False), *plan.ENV_COUNTS}:
        return []  # a place for some of them only
    known = map(find, dict.fromkeys((*RIVALS, *_named(name, num_envs))))
    kind = WORKLOADS[name].plays if name in WORKLOADS else "one"
    return [one.name for one in known if one.family == "rival" and kind in one.plays]


def _ours(contestant: str, workload: str, num_envs: int, duration_s: float) -> Job:
    return Job(contestant, WORKLOADS[workload].env, num_envs, duration_s=duration_s)
