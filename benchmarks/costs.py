"""What each backend costs, by the model that `backend="auto"` chooses by.

    python -m benchmarks.costs

Steps an environment that does nothing, with several numbers of environments and workers, takes the
environment's own time away, and fits `batch + workers × worker + share × env` by least squares.
Prints the table for `COSTS` in `src/shoal/vector/choice.py`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.workloads import empty
from shoal.engine.machine import usable_cores
from shoal.measure import Job, contest
from shoal.vector.choice import Cost

ENV_COUNTS = (2, 4, 8, 16, 32, 64, 128)
ENV = "benchmarks.workloads:empty"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.costs")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    cores = usable_cores()
    jobs = {job: name for name, job in jobs_for(cores, given.seconds)}
    least: dict[Job, float] = {}  # others who use the machine only ever make it slower
    for outcome in contest(jobs, given.rounds):
        if outcome.figures is not None and outcome.figures.p50_s is not None:
            least[outcome.job] = min(outcome.figures.p50_s, least.get(outcome.job, float("inf")))
    own_s = own_time_s()
    print(f"{cores} cores; a step of the environment itself takes {own_s * 1e6:.2f} µs\n")
    for name in dict.fromkeys(jobs.values()):
        points = [
            (job.num_workers or 1, job.num_envs, time_s)
            for job, time_s in least.items()
            if jobs[job] == name
        ]
        cost, error = fit(points, own_s)
        print(
            f'    "{name}": Cost(batch_s={cost.batch_s * 1e6:.1f}e-6, '
            f"worker_s={cost.worker_s * 1e6:.1f}e-6, env_s={cost.env_s * 1e6:.2f}e-6),"
            f"  # within {error:.0%}"
        )


def own_time_s() -> float:
    """A step of the environment in a plain loop."""
    env, count, taken = empty(), 10_000, []
    env.reset(seed=0)
    for _ in range(10):
        begun = time.perf_counter()
        for _ in range(count):
            env.step(0)
        taken.append(time.perf_counter() - begun)
    return min(taken) / count


def jobs_for(cores: int, duration_s: float) -> Iterator[tuple[str, Job]]:
    """What to measure, under the name of its costs."""
    workers = sorted({1, 2, 4, 8, cores - 1, cores} & set(range(1, cores + 1)))
    for num_envs in ENV_COUNTS:
        yield "serial", Job("shoal serial", ENV, num_envs, 1, duration_s)
        for count in (one for one in workers if one <= num_envs):
            name = "process" if count == cores else "process, a core to spare"
            yield name, Job("shoal process", ENV, num_envs, count, duration_s)
            if count > 1:
                yield "hybrid", Job("shoal hybrid", ENV, num_envs, count, duration_s)


def fit(points: Sequence[tuple[int, int, float]], own_s: float) -> tuple[Cost, float]:
    """The costs behind times of (workers, envs), and how far off they are in the middle."""
    shares = [-(-num_envs // workers) for workers, num_envs, _ in points]
    table = np.array(
        [[1.0, workers, share] for (workers, *_), share in zip(points, shares, strict=True)]
    )
    times = np.array([time_s for *_, time_s in points]) - own_s * table[:, 2]
    if len(set(table[:, 1])) == 1:
        table[:, 1] = 0.0  # then what a worker costs cannot be told from what a batch costs
    weights = 1 / times  # relative errors: few environments count as much as many
    found, *_ = np.linalg.lstsq(table * weights[:, None], times * weights, rcond=None)
    found = np.maximum(found, 0.0)
    error = float(np.median(np.abs(table @ found - times) / times))
    return Cost(*found.tolist()), error


if __name__ == "__main__":
    main()
