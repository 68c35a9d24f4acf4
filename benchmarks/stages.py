"""Where the time of a step goes.

    python -m benchmarks.stages                   # the calls of a step of all, one after another
    python -m benchmarks.stages --against         # a plain loop, Gymnasium's Sync and serial

The first table is made by doing what `Pool.step` does, with a clock between: medians over many
steps, and how long workers were at theirs. The second compares the same trajectories step by step
and takes the least of many rounds, which other programs on the machine hardly disturb.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv

import shoal
from benchmarks.workloads import cartpole, empty
from shoal.engine.machine import usable_cores
from shoal.measure.table import as_text

WORLDS: dict[str, Callable[[], gymnasium.Env[Any, Any]]] = {"empty": empty, "cartpole": cartpole}
ENV_COUNTS = (2, 8, 64)
STAGES = ("write", "put", "catch up", "wait", "record", "collect")
WARM_UP_STEPS = 600


def stages(envs: shoal.VectorEnv, num_steps: int) -> tuple[list[float], float, float]:
    """Median time of each stage; mean and (median of the) longest time of a worker, all in us."""
    pool, books = envs._pool, envs._pool.books
    actions = sampled(envs, 64)
    envs.reset(seed=0)
    for step in range(WARM_UP_STEPS):
        envs.step(actions[step % 64])
    workers = pool.quick.workers
    times, busy, clock = [], [], time.perf_counter
    before = np.array([worker.busy_ns() for worker in workers])
    for step in range(num_steps):
        stamps = [clock()]
        books.actions.write_plain(actions[step % 64])
        stamps.append(clock())
        slot = 1 - books.slots.common
        if books.shelves is not None:
            books.shelves.aim(None)
        for worker in workers:
            worker.put_step(slot)
        stamps.append(clock())
        books.catch_up(pool.supervisor)
        stamps.append(clock())
        has_ended = [worker.end_step() for worker in workers]
        stamps.append(clock())
        assert None not in has_ended, "a worker had more to say, or took too long: run it again"
        books.record_all(any(has_ended), pool.supervisor)
        stamps.append(clock())
        laid = None if books.shelves is None else books.shelves.laid()
        books.reader.collect(books.slots.common, laid)
        stamps.append(clock())
        times.append(np.diff(stamps))
        now = np.array([worker.busy_ns() for worker in workers])
        busy.append(now - before)
        before = now
    spent = np.array(busy) / 1e3
    medians: list[float] = (np.median(times, axis=0) * 1e6).tolist()
    return medians, float(spent.mean()), float(np.median(spent.max(axis=1)))


def sampled(envs: Any, count: int) -> list[Any]:
    envs.action_space.seed(0)
    return [envs.action_space.sample() for _ in range(count)]


class PlainLoop:
    """Nothing but the environments, with the resets of the next-step mode."""

    def __init__(self, factory: Callable[[], Any], num_envs: int) -> None:
        self._envs = [factory() for _ in range(num_envs)]
        self._over = [False] * num_envs

    def reset(self, seed: int) -> None:
        for k, env in enumerate(self._envs):
            env.reset(seed=seed + k)
        self._over = [False] * len(self._envs)

    def step(self, actions: Any) -> None:
        over = self._over
        for k, (env, action) in enumerate(zip(self._envs, actions, strict=True)):
            if over[k]:
                env.reset()
                over[k] = False
                continue
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                over[k] = True


def least(contestants: Sequence[Any], actions: Sequence[Any], rounds: int) -> list[float]:
    """The time of a step of each, in us: mean over a trajectory of the least of many rounds."""
    times = np.full((len(contestants), len(actions)), np.inf)
    clock = time.perf_counter
    for _ in range(rounds):
        for envs, row in zip(contestants, times, strict=True):
            envs.reset(seed=0)
            for k, one in enumerate(actions):
                begun = clock()
                envs.step(one)
                row[k] = min(row[k], clock() - begun)
    means: list[float] = (times.mean(axis=1) * 1e6).tolist()
    return means


def show_stages(num_steps: int) -> None:
    cores = usable_cores()
    settings = [("serial", 1, 8), ("serial", 1, 64), ("hybrid", cores, 4 * cores)]
    settings += [("hybrid", cores, 16 * cores), ("process", max(1, cores - 1), 16 * (cores - 1))]
    rows = []
    for world, factory in WORLDS.items():
        for backend, workers, num_envs in settings:
            chosen = None if backend == "serial" else workers
            with shoal.make(factory, num_envs, backend=backend, num_workers=chosen) as envs:
                medians, mean, longest = stages(envs, num_steps)
            figures = [*medians, sum(medians), mean, longest]
            rows.append(
                [world, f"{backend} ×{workers}", str(num_envs), *map("{:.1f}".format, figures)]
            )
    headers = ["world", "backend", "envs", *STAGES, "in all", "busy, mean", "busy, longest"]
    print(as_text(headers, rows))


def show_against(rounds: int) -> None:
    rows = []
    for world, factory in WORLDS.items():
        for num_envs in ENV_COUNTS:
            sync = SyncVectorEnv([factory] * num_envs)
            with shoal.make(factory, num_envs, backend="serial") as serial:
                contestants = [PlainLoop(factory, num_envs), sync, serial]
                plain, theirs, ours = least(contestants, sampled(serial, 200), rounds)
            sync.close()
            figures = [*map("{:.1f}".format, (plain, theirs, ours)), f"{theirs / ours:.2f}"]
            rows.append([world, str(num_envs), *figures])
    print(as_text(["world", "envs", "plain loop", "gymnasium sync", "shoal serial", "ratio"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.stages")
    parser.add_argument("--against", action="store_true", help="compare serial with a plain loop")
    parser.add_argument("--steps", type=int, default=3000, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=40, help="of a comparison")
    given = parser.parse_args()
    print("µs per step of all environments\n")
    if given.against:
        show_against(given.rounds)
    else:
        show_stages(given.steps)


if __name__ == "__main__":
    main()
