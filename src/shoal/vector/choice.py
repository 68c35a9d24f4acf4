"""Which backend, and how many workers: a pure function of what was measured.

A step of all environments takes, as a model,

    batch + workers × worker + share × (env + step + bytes × byte)
                                                   share = ceil(num_envs / workers)

where `batch`, `worker`, `env` and `byte` are the engine's own costs. Most differ between backends:
serial has one worker, the caller; hybrid counts the caller among its workers; processes answer
sooner while there is a core for each of them *and* for the caller. They are also isolated, which is
worth something: that is given up only where it makes steps faster by a clear margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.engine.probe import Probe, Unprobed


@dataclass(frozen=True, slots=True)
class Cost:
    """What a backend adds to the steps of environments, in seconds."""

    batch_s: float
    """For each step of all, however many there are."""
    worker_s: float
    """For each worker in it."""
    env_s: float
    """For each environment, where it is stepped."""


COSTS = {
    "serial": Cost(batch_s=6.8e-6, worker_s=0.0, env_s=0.36e-6),
    "hybrid": Cost(batch_s=7.0e-6, worker_s=1.5e-6, env_s=0.37e-6),
    "process": Cost(batch_s=60e-6, worker_s=1.0e-6, env_s=0.58e-6),
    "process, a core to spare": Cost(batch_s=6.0e-6, worker_s=1.6e-6, env_s=0.40e-6),
}
"""`python -m benchmarks.costs` prints this table for the machine it runs on. On 2 cores it gave
6.8 + 0.36 us for serial, 7.7 + 0.37 for hybrid, 71 + 0.58 for process and 7.1 + 0.34 with a core to
spare (within 1 %, process within 6 %). What each worker costs shows only where there are many: it
was taken from steps that do nothing with 15 workers (32 us for 60 environments) and with 16 (64 us
for 64) on a machine of 16 cores."""

BYTE_S = 35e-12
"""For each byte of an observation, which is written into its row and copied for the caller. Frames
of 28 and 100 kB took `serial` 0.85 and 3.5 us each, 8 of them a batch; workers copy their own."""
CROWDED_S = 4e-3
"""How long a worker may share a core with another before the system moves it, where workers leave
no core to the caller and there are more than two. All wait for that worker, so a step of all takes
up to twice as long: on 16 cores 64 environments of 500 us took 16 workers 4.1 ms, where each has
2 ms of work, and 15 workers 2.6 ms."""
CROWDED_SHARE, CROWDED_MOST_S = 0.3, 0.3e-3
"""The same on two cores, as a share of a step of all and at most: less, for the caller has less to
do, but whoever else uses the machine for a moment adds to it. `process` took 0.2 to 0.4 ms longer
than `hybrid` for 32 HalfCheetahs (1.08 and 0.86 ms), 16 Game Boys (1.03 and 0.83 ms) and 32 teams
(5.2 and 4.8 ms); on a quiet machine and for environments that are all alike 0.03 to 0.1 ms."""
CHEAP_S = 0.5e-3
"""Environments whose steps take longer are simulators: there is more in them that can go wrong."""
ISOLATION_WORTH, ISOLATION_WORTH_OF_LONG = 1.10, 1.22
"""How much slower processes may be before their isolation is given up for speed. 64 environments of
500 us on 16 cores took 15 processes 2.6 ms, and the caller with 15 beside it 2.1 ms; 16 of them
1.06 and 0.56 ms."""
WORKER_WORTH = 1.05
"""How much faster a step of all must become for more workers to be started."""
MOST_WORKERS = 64
"""However much environments wait: processes cost memory, and a turn of the caller each."""
GPU_WORKERS = 4
"""Each process that uses a GPU has a context there, of some hundred megabytes."""
MEMORY_SHARE = 0.5
"""How much of the free memory workers beyond the cores may take."""
_WORKER_MB = 12.0
"""What a worker process takes before it has an environment."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Where environments are to run; `reason` is one line for people."""

    backend: str
    num_workers: int
    reason: str


@dataclass(frozen=True, slots=True)
class Situation:
    """What there is to choose for, apart from the environment."""

    num_envs: int
    cores: int
    num_workers: int | None = None
    """As the user has said; None to choose."""
    isolated: bool = False
    """Whether something was asked for that only worker processes can do."""
    free_mb: float | None = None

    @property
    def usual_workers(self) -> int:
        """As many as cores, unless told, and never more than environments."""
        return min(self.num_workers or self.cores, self.num_envs)


def needs_probe(situation: Situation) -> bool:
    """Whether a measurement could make a difference."""
    if situation.isolated:
        return situation.num_workers is None and situation.num_envs > situation.cores
    return situation.num_envs > 1


def choose(
    probe: Probe | Unprobed | None, situation: Situation, costs: Mapping[str, Cost] = COSTS
) -> Choice:
    """The backend and the number of workers for these environments; None: nothing was measured."""
    workers = situation.usual_workers
    if probe is None and situation.num_envs == 1 and not situation.isolated:
        return Choice("serial", 1, "there is one environment")
    if probe is None:
        why = "isolation was asked for" if situation.isolated else "nothing was measured"
        return Choice("process", workers, why)
    if isinstance(probe, Unprobed):
        return Choice("process", workers, probe.why)
    if probe.uses_gpu and situation.num_workers is None:
        few = min(workers, GPU_WORKERS)
        return Choice("process", few, "it uses the GPU itself, which few workers can share")
    if probe.waits:
        return _for_waiting(probe, situation, costs)
    return _for_working(probe, situation, costs)


def _for_working(probe: Probe, situation: Situation, costs: Mapping[str, Cost]) -> Choice:
    """An environment that computes: isolation, unless it costs too much."""
    times = {
        option: batch_time(
            costs[_cost_of(*option, situation.cores)], probe, situation.num_envs, option[1]
        )
        for option in _options(situation)
    }
    quick = ("serial", 1)
    hybrid = next((option for option in times if option[0] == "hybrid"), None)
    if hybrid is not None and times[quick] > WORKER_WORTH * times[hybrid]:
        quick = hybrid
    processes = {
        option: _crowded(time_s, probe.work_s, option[1], situation.cores)
        for option, time_s in times.items()
        if option[0] == "process"
    }
    best = min(processes, key=lambda option: processes[option])
    if situation.isolated:
        return Choice(*best, f"isolation was asked for; {_step(probe)}")
    worth = ISOLATION_WORTH if probe.work_s < CHEAP_S else ISOLATION_WORTH_OF_LONG
    if processes[best] <= worth * times[quick]:
        return Choice(*best, f"{_step(probe)}, which is worth a worker process")
    gain = processes[best] / times[quick]
    short = "so cheap" if probe.work_s < CHEAP_S else "so short"
    reason = f"{_step(probe)}, {short} that worker processes alone would take {gain:.1f} times"
    return Choice(*quick, f"{reason} as long")


def _options(situation: Situation) -> list[tuple[str, int]]:
    """Backends and numbers of workers to choose among; ties go to the earlier."""
    workers, cores = situation.usual_workers, situation.cores
    options = [("serial", 1), ("process", workers)]
    if workers > 1 and cores > 1:
        options.append(("hybrid", workers))
    if situation.num_workers is None and workers == cores > 2:
        options.append(("process", cores - 1))  # and a core for the caller
    return options


def _crowded(time_s: float, work_s: float, workers: int, cores: int) -> float:
    """A step of all, where worker processes leave the caller no core of its own."""
    if workers < cores or cores == 1:
        return time_s
    if cores > 2:
        return time_s + min(time_s, CROWDED_S)
    return time_s + min(CROWDED_SHARE * time_s, CROWDED_MOST_S) * (work_s < CHEAP_S)


def _cost_of(backend: str, workers: int, cores: int) -> str:
    """The name of its costs."""
    spare = backend == "process" and workers < cores
    return "process, a core to spare" if spare else backend


def _for_waiting(probe: Probe, situation: Situation, costs: Mapping[str, Cost]) -> Choice:
    """An environment that waits leaves its core to others: more workers than cores."""
    workers = situation.num_workers
    if workers is None:
        workers = _waiting_workers(probe, situation, costs["process"])
    workers = min(workers, situation.num_envs)
    share = probe.cpu_s / probe.step_s
    reason = f"{_step(probe)}, at work for {share:.0%} of that, so more workers than cores pay"
    if workers <= situation.cores:
        reason = f"{_step(probe)}, at work for {share:.0%} of that"
    return Choice("process", workers, reason)


def _waiting_workers(probe: Probe, situation: Situation, cost: Cost) -> int:
    most = min(situation.num_envs // probe.width, max(MOST_WORKERS, situation.cores))
    if situation.free_mb is not None:
        room = int(MEMORY_SHARE * situation.free_mb / (_WORKER_MB + probe.memory_mb))
        most = min(most, max(room, situation.cores))
    most = max(1, most)
    times = [
        _waiting_time(cost, probe, situation.num_envs, workers, situation.cores)
        for workers in range(1, most + 1)
    ]
    limit = WORKER_WORTH * min(times)
    return 1 + next(k for k, time_s in enumerate(times) if time_s <= limit)


def _waiting_time(cost: Cost, probe: Probe, num_envs: int, workers: int, cores: int) -> float:
    """A step of all, where workers wait side by side and compute one after another on each core.

    Everyone waits for the slowest worker. Of w workers whose shares take the same mean time, and
    differ by the deviation d, that is about d sqrt(2 ln w) above it.
    """
    share = -(-num_envs // workers)
    deviation_s = probe.spread * probe.step_s * math.sqrt(share)
    waited_s = share * (probe.step_s + cost.env_s) + deviation_s * math.sqrt(2 * math.log(workers))
    computed_s = num_envs * (probe.cpu_s + cost.env_s) / cores
    return cost.batch_s + workers * cost.worker_s + max(waited_s, computed_s)


def batch_time(cost: Cost, probe: Probe, num_envs: int, workers: int) -> float:
    """How long a step of all environments should take, by the model."""
    share, copied_s = -(-num_envs // workers), probe.observation_bytes * BYTE_S
    return cost.batch_s + workers * cost.worker_s + share * (cost.env_s + probe.work_s + copied_s)


def _step(probe: Probe) -> str:
    return f"a step takes {in_words(probe.step_s if probe.waits else probe.cpu_s)}"


def in_words(seconds: float) -> str:
    """A time with its unit, to two digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            value = seconds / size
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return f"{seconds * 1e6:.1f} µs"
