"""What each backend costs, by the model that `backend="auto"` chooses by.

    python -m benchmarks.costs

Steps an environment that does nothing, with several numbers of environments and workers, takes the
environment's own time away, and fits `batch + workers × worker + share × env` by least squares.
Prints the table for `COSTS` in `src/shoal/vector/choice.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.workloads import empty
from shoal.engine.machine import usable_cores
from shoal.engine.probe import measure
from shoal.measure import Job, contest, summarise
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
    rows = summarise(contest(jobs, given.rounds))
    own_s = measure(empty()).cpu_s
    print(f"{cores} cores; a step of the environment itself takes {own_s * 1e6:.2f} µs\n")
    for name in dict.fromkeys(jobs.values()):
        points = [
            (row.job.num_workers or 1, row.job.num_envs, row.middle.p50_s)
            for row in rows
            if jobs[row.job] == name and row.middle.p50_s is not None
        ]
        cost, error = fit(points, own_s)
        print(
            f'    "{name}": Cost(batch_s={cost.batch_s * 1e6:.1f}e-6, '
            f"worker_s={cost.worker_s * 1e6:.1f}e-6, env_s={cost.env_s * 1e6:.2f}e-6),"
            f"  # within {error:.0%}"
        )


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
