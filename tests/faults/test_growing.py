"""Is a worker that grows too large replaced, and no episode cut for it?"""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil
import pytest

import shoal
from faults.conftest import Record, Scale
from shoal import ConfigError, Faults
from shoal.testing import CountingWorld
from trace_of import assert_same

NUM_ENVS = 4
LEAK_BYTES = 200_000


class Leaky(CountingWorld):
    """Keeps something from every step."""

    def __init__(self) -> None:
        super().__init__(history=False, infos="numeric")
        self.kept: list[bytearray] = []

    def step(self, action: Any) -> Any:
        self.kept.append(bytearray(b"x") * LEAK_BYTES)
        return super().step(action)


def actions(step: int) -> Any:
    return (np.arange(NUM_ENVS) + step) % 3


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_leaking_environment_is_recycled_between_episodes(
    mode: str, scale: Scale, figure: Record
) -> None:
    limit_mb, steps = 100.0, scale(short=700, full=5000)
    calm = shoal.make(
        lambda: CountingWorld(history=False, infos="numeric"),
        NUM_ENVS,
        backend="serial",
        autoreset=mode,
    )
    faults, most_mb = Faults(max_worker_rss_mb=limit_mb), 0.0
    where = {"backend": "process", "num_workers": 2, "autoreset": mode, "faults": faults}
    with calm, shoal.make(Leaky, NUM_ENVS, **where) as envs:
        assert_same(envs.reset(seed=0), calm.reset(seed=0))
        for step in range(steps):
            got = envs.step(actions(step))
            assert_same(got, calm.step(actions(step)), f"step {step}")
            ended = got[2] | got[3]
            if mode == "disabled" and ended.any():
                mask = {"reset_mask": ended}
                assert_same(envs.reset(options=dict(mask)), calm.reset(options=dict(mask)))
            most_mb = max(most_mb, *(worker.resident_mb() for worker in envs._pool.workers))
        stats = envs.stats()
        kinds = {(one["kind"], one["outcome"]) for one in stats["incidents"]}
        assert kinds == {("grown", "recycled")}
        assert stats["restarts"] == 0
        recycled = stats["num_incidents"]
        assert recycled >= 2
        pids = [worker.pid for worker in envs._pool.workers]
        assert 2 <= len(pids) <= 4
        children = [child.pid for child in psutil.Process(pids[0]).parent().children()]
        assert sorted(children) == sorted(pids), "those that were replaced are gone"
    figure(
        "F15",
        f"leak of {steps * LEAK_BYTES * NUM_ENVS >> 20} MB, limit {limit_mb:.0f} MB, {mode}",
        f"{recycled} workers replaced, at most {most_mb:.0f} MB, no episode cut",
    )


def test_sent_environments_are_recycled_too() -> None:
    faults = Faults(max_worker_rss_mb=100.0)
    where = {"backend": "process", "num_workers": 2, "batch_size": 2, "faults": faults}
    with shoal.make(Leaky, NUM_ENVS, **where) as envs:
        envs.reset(seed=0)
        envs.send(np.zeros(NUM_ENVS, dtype=np.int64))
        received = 0
        while envs.stats()["num_incidents"] < 3:
            batch = envs.recv()
            received += len(batch.env_ids)
            assert received < 20_000
            envs.send(np.zeros(len(batch.env_ids), dtype=np.int64), batch.env_ids)
        assert envs.stats()["restarts"] == 0


def test_a_limit_that_a_fresh_worker_exceeds_is_told_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with shoal.make(
        CountingWorld, 2, backend="process", num_workers=1, faults=Faults(max_worker_rss_mb=1.0)
    ) as envs:
        envs.reset(seed=0)
        for _ in range(50):
            envs.step(np.zeros(2, dtype=np.int64))
        assert envs.stats()["num_incidents"] == 0
        assert len(envs._pool.workers) == 1
    assert caplog.text.count("Raise the limit") == 1


@pytest.mark.parametrize("backend", ["serial", "thread"])
def test_only_processes_have_memory_of_their_own(backend: str) -> None:
    with pytest.raises(ConfigError, match="max_worker_rss_mb needs"):
        shoal.make(CountingWorld, 2, backend=backend, faults=Faults(max_worker_rss_mb=500.0))
