"""`make bench`: steps per second of each contestant, interleaved, as a table of medians.

The bound is the same number of processes stepping the same environments without communication.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

import shoal
from benchmarks.workloads import WORKLOADS
from shoal.engine.machine import usable_cores

REPEATS, DURATION_S = 3, 0.5
ENV_COUNTS = (8, 64)


def rate(envs: Any, num_envs: int) -> float:
    """Steps per second; a call that only resets counts as none."""
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(64)]
    envs.reset(seed=0)
    resets = envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
    steps, begun = 0, time.perf_counter()
    for action in itertools.cycle(actions):
        _, _, terminated, truncated, _ = envs.step(action)
        steps += num_envs - (int((terminated | truncated).sum()) if resets else 0)
        if (taken := time.perf_counter() - begun) >= DURATION_S:
            return steps / taken
    raise AssertionError


def contestants(factory: Callable[[], Any], num_envs: int) -> dict[str, Callable[[], Any]]:
    fns = [factory] * num_envs
    ours = {
        f"shoal {backend}": lambda backend=backend: shoal.make(factory, num_envs, backend=backend)
        for backend in ("serial", "thread", "process")
    }
    return {
        "gymnasium sync": lambda: SyncVectorEnv(fns),
        "gymnasium async": lambda: AsyncVectorEnv(fns),
        **ours,
    }


def bound(factory: Callable[[], Any], num_envs: int) -> float:
    """All cores stepping plain environments, nobody talking."""
    context = multiprocessing.get_context("fork")
    with context.Pool(usable_cores()) as pool:
        each = max(1, num_envs // usable_cores())
        return sum(pool.starmap(_plain_rate, [(factory, each)] * usable_cores(), chunksize=1))


def _plain_rate(factory: Callable[[], Any], num_envs: int) -> float:
    envs = [factory() for _ in range(num_envs)]
    for env in envs:
        env.reset(seed=0)
    steps, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < DURATION_S:
        for env in envs:
            _, _, terminated, truncated, _ = env.step(0)
            steps += 1
            if terminated or truncated:
                env.reset()
    return steps / taken


def measure(factory: Callable[[], Any], num_envs: int) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        rates.setdefault("bound", []).append(bound(factory, num_envs))
        for name, make in contestants(factory, num_envs).items():
            envs = make()
            rates.setdefault(name, []).append(rate(envs, num_envs))
            envs.close()
    return rates


def main() -> None:
    print(f"steps/s, median of {REPEATS} (lowest to highest), {usable_cores()} cores\n")
    for (workload, factory), num_envs in itertools.product(WORKLOADS.items(), ENV_COUNTS):
        rates = measure(factory, num_envs)
        top = statistics.median(rates["bound"])
        print(f"{workload}, {num_envs} envs")
        for name, values in rates.items():
            middle = statistics.median(values)
            spread = f"({min(values):,.0f} to {max(values):,.0f})"
            print(f"  {name:<18}{middle:>12,.0f}  {spread:<26}{middle / top:>6.2f} of the bound")
        print()


if __name__ == "__main__":
    main()
