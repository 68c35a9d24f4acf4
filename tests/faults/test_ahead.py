"""Steps that are put ahead: a worker goes on by itself, unless the caller has to hear of something.

Whatever becomes of the step before, or of the one ahead, each environment takes every step once.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.engine.backends import Worker
from shoal.testing.saboteurs import Saboteur
from shoal.testing.worlds import CountingWorld

NUM_ENVS = 4
PATIENCE_S = 20.0


def make(**kwargs: Any) -> shoal.VectorEnv:
    worlds = [partial(CountingWorld, tag, **kwargs) for tag in range(NUM_ENVS)]
    envs = shoal.make(worlds, backend="process", num_workers=1)
    envs.reset(seed=0)
    return envs


def send_one_after_another(envs: shoal.VectorEnv) -> Worker:
    """Two steps for one worker: the second is put ahead."""
    envs.send(np.array([1, 1]), [0, 1])
    envs.send(np.array([1, 1]), [2, 3])
    (seat,) = envs._pool.seats
    assert seat.flight is not None
    assert seat.ahead is not None
    assert (seat.flight.sent, seat.ahead.sent) == ([0, 1], [2, 3])
    return seat.worker


def wait_until_idle(worker: Worker) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not worker.is_idle() and time.monotonic() < until:
        time.sleep(0.001)
    return worker.is_idle()


def test_a_worker_takes_the_step_ahead_while_the_caller_is_elsewhere() -> None:
    with make() as envs:
        worker = send_one_after_another(envs)
        assert wait_until_idle(worker)
        first = envs.recv(min_envs=2)
        assert [*first.env_ids, *envs.recv().env_ids] == [0, 1, 2, 3]
        assert [record.step for record in envs.call("record")] == [1, 1, 1, 1]


def test_a_worker_that_has_something_to_say_waits_to_be_heard() -> None:
    with make(infos="mixed") as envs:  # some of which have no column
        worker = send_one_after_another(envs)
        until = time.monotonic() + PATIENCE_S
        while not worker.has_answered() and time.monotonic() < until:
            time.sleep(0.001)
        assert worker.has_answered()
        time.sleep(0.05)
        assert not worker.is_idle()
        assert envs.recv(min_envs=2).env_ids.tolist() == [0, 1]
        assert envs.recv().env_ids.tolist() == [2, 3]
        assert [record.step for record in envs.call("record")] == [1, 1, 1, 1]


def steps_in_parts(
    envs: shoal.VectorEnv, count: int, least: int
) -> list[list[tuple[bytes, float, bool]]]:
    """What each environment has seen, taken in batches of some of them."""
    streams: list[list[tuple[bytes, float, bool]]] = [[] for _ in range(NUM_ENVS)]
    envs.reset(seed=3)
    envs.send(np.ones(NUM_ENVS, dtype=np.int64))
    while min(map(len, streams)) < count:
        batch = envs.recv(min_envs=least)
        for k, env_id in enumerate(batch.env_ids.tolist()):
            ended = bool(batch.terminations[k] or batch.truncations[k])
            streams[env_id].append((batch.observations[k].tobytes(), batch.rewards.item(k), ended))
        envs.send(np.ones(len(batch.env_ids), dtype=np.int64), batch.env_ids)
    return [stream[:count] for stream in streams]


@pytest.mark.parametrize("who", range(NUM_ENVS))
@pytest.mark.parametrize("how", ["sigkill", "raise"])
@pytest.mark.parametrize(("num_workers", "least"), [(2, 2), (1, 3)])
def test_a_failure_in_either_step_costs_nobody_a_step(
    who: int, how: Any, num_workers: int, least: int, tmp_path: Path
) -> None:
    """It is in the step under way for some, in the one ahead for others."""
    policy: dict[str, Any] = {"on_failure": "replay"}
    if how == "raise":
        policy["faults"] = shoal.Faults(on_error="restart")

    def world(tag: int, path: Path | None) -> Any:
        if path is None:
            return CountingWorld(tag, history=False)
        inner = CountingWorld(tag, history=False)
        return Saboteur(how, at_episode=1, at_step=2, once_path=path, env=inner)

    def run(path: Path | None) -> list[list[tuple[bytes, float, bool]]]:
        paths = [path if tag == who else None for tag in range(NUM_ENVS)]
        worlds = [partial(world, tag, one) for tag, one in enumerate(paths)]
        with shoal.make(worlds, backend="process", num_workers=num_workers, **policy) as envs:
            streams = steps_in_parts(envs, 40, least)
            assert envs.stats()["num_incidents"] == (path is not None)
        return streams

    expected, got = run(None), run(tmp_path / "failed")
    others = [i for i in range(NUM_ENVS) if how == "sigkill" or i != who]
    assert [got[i] for i in others] == [expected[i] for i in others]


def test_calls_wait_for_what_is_ahead() -> None:
    with make() as envs:
        envs.send(np.array([1]), [0])
        envs.send(np.array([1]), [1])
        assert [record.step for record in envs.call("record", env_ids=[2, 3])] == [0, 0]
        envs.reset_envs([2], seeds=[5])
        assert envs.recv().env_ids.tolist() == [0, 1]
        assert [record.step for record in envs.call("record")] == [1, 1, 0, 0]


def test_every_batch_holds_the_share_of_the_caller_itself() -> None:
    worlds = [partial(CountingWorld, tag) for tag in range(8)]
    with shoal.make(worlds, backend="hybrid", num_workers=2, batch_size=4) as envs:
        envs.reset(seed=0)
        envs.send(np.ones(8, dtype=np.int64))
        for _ in range(50):
            batch = envs.recv()
            assert (batch.env_ids < 4).sum() >= 2
            envs.send(np.ones(len(batch.env_ids), dtype=np.int64), batch.env_ids)
