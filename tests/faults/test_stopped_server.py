"""A server that does nothing any more keeps no worker alive, and no block of signals is reused."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import ISOLATED, Setting
from faults.program import wait_until
from faults.test_interrupted_starts import paused, server_of
from faults.test_offspring import is_over
from shoal import WorkerTimeout
from shoal.testing import CountingWorld

WITHIN_S = 2.0


class Hanging(CountingWorld):
    def step(self, action: Any) -> Any:
        if action:
            threading.Event().wait()
        return super().step(action)


def test_a_hanging_worker_is_killed_without_the_server() -> None:
    with shoal.make(
        Hanging, 2, backend="process", num_workers=2, step_timeout_s=0.3, on_failure="raise"
    ) as envs:
        envs.reset(seed=0)
        pids = [worker.pid for worker in envs._pool.workers]
        with paused(server_of(envs)):
            with pytest.raises(WorkerTimeout, match="was killed"):
                envs.step(np.array([0, 1]))
            assert [is_over(pid) for pid in pids] == [False, True]


@pytest.mark.parametrize("setting", ISOLATED[1::2], indirect=True, ids=str)
def test_a_block_is_not_given_away_while_its_process_may_live(setting: Setting) -> None:
    with shoal.make(Hanging, 2, backend="process", num_workers=2) as envs:
        envs.reset(seed=0)
        backend: Any = envs._pool.backend
        with paused(server_of(envs)):
            envs._pool.workers[0].close(deadline=time.monotonic())
            assert backend._free_block(0, backend._header) not in (0, 1)
        assert wait_until(lambda: backend._free_block(0, backend._header) == 0, WITHIN_S)
