"""Moving environments between workers is nobody's wish: if it fails, no result is lost for it."""

from __future__ import annotations

import functools
import threading
from typing import Any, NoReturn

import numpy as np
import pytest

import shoal
from faults.recovering import worlds
from shoal import ConfigError, EnvRaised, Faults, WorkerDied
from shoal.engine import staff
from shoal.engine.backends.process.outside import ProcessWorker
from shoal.engine.pace import Pace
from shoal.engine.pool import Pool
from shoal.testing import CountingWorld
from trace_of import assert_same

PROBLEMS = {"died": functools.partial(WorkerDied, worker=2), "refused": ConfigError}
TOLD = "environments could not be moved between workers"
NUM_ENVS = 4


def world() -> CountingWorld:
    return CountingWorld(history=False)


def refuse_workers(problem: str, patch: pytest.MonkeyPatch) -> list[None]:
    """Let no new worker be started; the list grows with every attempt."""
    attempts: list[None] = []

    def refuse(pool: Pool) -> NoReturn:
        attempts.append(None)
        raise PROBLEMS[problem]("no room for another worker.")

    patch.setattr(staff, "add_seat", refuse)
    return attempts


def advance(envs: shoal.VectorEnv, way: str) -> Any:
    actions = np.ones(NUM_ENVS, dtype=np.int64)
    if way == "step":
        return envs.step(actions)
    envs.send(actions)
    return tuple(envs.recv(min_envs=NUM_ENVS)[:5])


@pytest.mark.parametrize("way", ["step", "send"])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_grown_worker_that_cannot_be_replaced_works_on_until_it_can(
    problem: str,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    grown: set[int] = set()
    monkeypatch.setattr(
        ProcessWorker, "resident_mb", lambda worker: 500.0 if worker.pid in grown else 50.0
    )
    faults = Faults(max_worker_rss_mb=100.0)
    calm = shoal.make(world, NUM_ENVS, backend="serial")
    with calm, shoal.make(world, NUM_ENVS, backend="process", num_workers=2, faults=faults) as envs:
        assert_same(envs.reset(seed=0), calm.reset(seed=0))
        assert_same(advance(envs, way), advance(calm, way))
        with monkeypatch.context() as patch:
            attempts = refuse_workers(problem, patch)
            grown.update(worker.pid for worker in envs._pool.workers)
            for _ in range(4):
                assert_same(advance(envs, way), advance(calm, way))
        assert len(attempts) >= 4
        for _ in range(2 * CountingWorld.max_steps):
            assert_same(advance(envs, way), advance(calm, way))
        assert grown.isdisjoint(worker.pid for worker in envs._pool.workers)
        assert envs.stats()["restarts"] == 0
    assert caplog.text.count(TOLD) == 1


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_slow_environment_that_gets_no_worker_stays_until_it_can(
    problem: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Pace, "slow", lambda pace: {1})
    calm = shoal.make(world, NUM_ENVS, backend="serial")
    with calm, shoal.make(world, NUM_ENVS, backend="process", num_workers=2) as envs:
        assert_same(envs.reset(seed=0), calm.reset(seed=0))
        with monkeypatch.context() as patch:
            attempts = refuse_workers(problem, patch)
            while len(attempts) < 3:
                assert_same(advance(envs, "send"), advance(calm, "send"))
        for _ in range(2 * CountingWorld.max_steps):
            assert_same(advance(envs, "send"), advance(calm, "send"))
        assert list(envs._pool.owner[1].env_ids) == [1]
    assert caplog.text.count(TOLD) == 1


class Risky(CountingWorld):
    """Raises when it is told to, after a while."""

    def __init__(self, tag: int) -> None:
        super().__init__(tag, history=False)
        self.min_steps = self.max_steps = (2, 5)[tag]

    def step(self, action: Any) -> Any:
        if action == 6:
            threading.Event().wait(0.2)
            raise ValueError("no")
        return super().step(action)


def test_what_another_raises_while_one_moves_is_raised(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Pace, "slow", lambda pace: set())
    with shoal.make(worlds(2, Risky), backend="process", num_workers=1) as envs:
        envs.reset(seed=0)
        apart = staff.add_seat(envs._pool)
        envs._pool.wishes = {0: apart, 1: apart}
        for _ in range(4):  # env 0 has moved, env 1 moves with its next step
            envs.send([0, 0])
            envs.recv()
        envs.send([6, 0])
        with pytest.raises(EnvRaised, match="env 0 raised ValueError in step"):
            envs.recv()
        assert envs.recv().env_ids.tolist() == [1]
        assert [seat is apart for seat in envs._pool.owner] == [True, True]
    assert "cannot move" not in caplog.text
