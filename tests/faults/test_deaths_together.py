"""Workers that die at the same moment take nobody along."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import psutil

import shoal
from faults.conftest import Scale
from shoal.testing import CountingWorld

NUM_ENVS = 12


class Dying(CountingWorld):
    """Its episodes take one step, so that earlier deaths are soon forgotten."""

    def step(self, action: Any) -> Any:
        if action:
            os.write(2, b"my last words\n")
            os._exit(3)
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, True, truncated, info


def test_their_server_outlives_them(scale: Scale) -> None:
    with shoal.make(
        Dying, NUM_ENVS, backend="process", num_workers=NUM_ENVS, autoreset="same_step"
    ) as envs:
        envs.reset(seed=0)
        before = server_pids(envs)
        for _ in range(scale(short=15, full=100)):
            infos = envs.step(np.ones(NUM_ENVS, dtype=np.int64))[4]
            assert infos["restarted"].all()
            assert envs.step(np.zeros(NUM_ENVS, dtype=np.int64))[2].all()
        assert server_pids(envs) == before


def server_pids(envs: shoal.VectorEnv) -> set[int]:
    return {psutil.Process(worker.pid).ppid() for worker in envs._pool.workers}
