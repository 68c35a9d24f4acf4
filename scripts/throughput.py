"""Steps CartPole on each backend for a moment and prints how fast that was.

There is no main guard, on purpose: worker processes do not import the script that started them.
"""

import itertools
import os
import time

import numpy as np

import shoal

ENV = "CartPole-v1"
NUM_ENVS = 64
SEED = 7
DURATION_S = 2.0


def usable_cores():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(backend, num_workers):
    """Step for DURATION_S; return steps/s and the returns of the episodes that ended."""
    # same_step: every row of every step is a real step of an environment.
    with shoal.make(
        ENV, NUM_ENVS, backend=backend, num_workers=num_workers, autoreset="same_step"
    ) as envs:
        envs.action_space.seed(SEED)
        actions = [envs.action_space.sample() for _ in range(256)]
        envs.reset(seed=SEED)
        rewards, ends = [], []
        start_s = time.perf_counter()
        for action in itertools.cycle(actions):
            _, reward, terminated, truncated, _ = envs.step(action)
            rewards.append(reward)
            ends.append(terminated | truncated)
            elapsed_s = time.perf_counter() - start_s
            if elapsed_s >= DURATION_S:
                break
    return len(rewards) * NUM_ENVS / elapsed_s, episode_returns(rewards, ends)


def episode_returns(rewards, ends):
    """The return of each ended episode, from one array of rewards and one of ends per step."""
    running, finished = np.zeros(NUM_ENVS), []
    for reward, ended in zip(rewards, ends, strict=True):
        running += reward
        finished.extend(running[ended])
        running[ended] = 0.0
    return finished


cores = usable_cores()
print(f"{NUM_ENVS} x {ENV}, random actions, {DURATION_S:g} s on each backend, {cores} cores\n")
print(f"{'backend':<9}{'workers':>7}{'steps/s':>12}{'ratio':>8}{'episodes':>10}{'mean return':>13}")
serial_rate = None
for backend, num_workers in [("serial", 1), ("thread", cores), ("process", cores)]:
    num_workers = min(num_workers, NUM_ENVS)
    rate, returns = run(backend, num_workers)
    serial_rate = serial_rate or rate
    mean_return = np.mean(returns) if returns else float("nan")
    print(
        f"{backend:<9}{num_workers:>7}{rate:>12,.0f}{rate / serial_rate:>7.2f}x"
        f"{len(returns):>10,}{mean_return:>13.1f}"
    )
