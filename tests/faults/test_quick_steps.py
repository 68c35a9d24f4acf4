"""Quick steps that are broken off: what workers have done is neither forgotten nor done again."""

from __future__ import annotations

import contextlib
import functools
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import ContractError
from shoal.engine.books import Books
from shoal.engine.journal import Journal
from shoal.engine.post import Post
from shoal.testing import CountingWorld

NUM_ENVS = 4
BACKENDS = ["serial", "thread", "process", "hybrid"]


class Short(CountingWorld):
    min_steps = max_steps = 5


class Long(CountingWorld):
    min_steps = max_steps = 300


def make(kind: Any, backend: str, num_envs: int = NUM_ENVS) -> shoal.VectorEnv:
    worlds = [functools.partial(kind, tag, history=False) for tag in range(num_envs)]
    return shoal.make(worlds, backend=backend, num_workers=None if backend == "serial" else 2)


def interrupt_once(patch: pytest.MonkeyPatch, owner: Any, name: str, after: bool = True) -> None:
    """Let the next call of a method raise KeyboardInterrupt, after it is done or instead."""
    real: Callable[..., Any] = getattr(owner, name)

    def broken(self: Any, *args: Any) -> Any:
        patch.setattr(owner, name, real)
        if after:
            real(self, *args)
        raise KeyboardInterrupt

    patch.setattr(owner, name, broken)


ZERO = np.zeros(NUM_ENVS, dtype=np.int64)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("call", ["step", "stats"])
def test_observations_are_the_latest_after_ctrl_c_in_the_bookkeeping(
    backend: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(Long, backend) as envs:
        envs.reset(seed=0)
        for _ in range(4):
            envs.step(ZERO)
        interrupt_once(monkeypatch, Journal, "add_rewards")
        with pytest.raises(KeyboardInterrupt):
            envs.step(ZERO) if call == "step" else envs.stats()
        for _ in range(3 if call == "stats" else 0):
            envs.step(ZERO)
        mask = np.arange(NUM_ENVS) == 0
        observations, _ = envs.reset(options={"reset_mask": mask})
        steps = [record.step for record in envs.call("record")]
        assert [int(row[4]) for row in observations] == steps


@pytest.mark.parametrize("backend", ["thread", "process"])  # elsewhere it leaves half a step
def test_episodes_are_counted_whole_however_often_ctrl_c_comes(backend: str) -> None:
    def ring(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    draw = np.random.default_rng(0)
    try:
        with make(Short, backend) as envs:
            envs.reset(seed=0)
            for _ in range(60):
                with contextlib.suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, float(draw.uniform(2e-4, 2e-3)))
                    while True:
                        envs.step(ZERO)
                for _ in range(12):
                    envs.step(ZERO)
                assert set(envs.stats()["episode_lengths"]) == {5}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("backend", BACKENDS)
def test_episodes_that_were_handed_out_are_counted(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(Short, backend) as envs:
        envs.reset(seed=0)
        for _ in range(5):
            _, _, terminations, truncations, _ = envs.step(ZERO)
        assert (terminations | truncations).all()
        worker = type(envs._pool.quick.workers[0])
        interrupt_once(monkeypatch, worker, "put_step", after=False)
        with pytest.raises(KeyboardInterrupt):
            envs.step(ZERO)
        assert envs.stats()["episodes"] == NUM_ENVS


def test_a_send_that_was_interrupted_is_still_outstanding(monkeypatch: pytest.MonkeyPatch) -> None:
    with make(Long, "process") as envs:
        envs.reset(seed=0)
        for _ in range(3):
            envs.step(ZERO)
        interrupt_once(monkeypatch, Post, "dispatch", after=False)
        with pytest.raises(KeyboardInterrupt):
            envs.send(np.array([3, 3]), env_ids=[0, 1])
        with pytest.raises(ContractError, match="were sent and not received"):
            envs.step(ZERO)
        assert envs.recv().env_ids.tolist() == [0, 1]
        assert [record.step for record in envs.call("record")] == [4, 4, 3, 3]


def test_ctrl_c_while_the_journal_grows_leaves_it_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with make(Long, "serial") as envs:
        envs.reset(seed=0)
        interrupt_once(monkeypatch, Journal, "_rings_of")
        num_interrupts = 0
        for _ in range(200):
            try:
                envs.step(ZERO)
            except KeyboardInterrupt:
                num_interrupts += 1
        assert num_interrupts == 1
        assert envs.call("record")[0].step >= 199


def test_a_signal_handler_may_ask_for_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    with make(Long, "serial") as envs:
        envs.reset(seed=0)
        envs.step(ZERO)
        real, asked = Books._record_ends, []

        def asking(self: Books, *args: Any) -> None:
            asked.append(envs.stats()["steps"])  # in the middle of the bookkeeping
            real(self, *args)

        monkeypatch.setattr(Books, "_record_ends", asking)
        for _ in range(310):
            envs.step(ZERO)
        assert asked
        assert set(envs.stats()["episode_lengths"]) == {300}


def test_hybrid_with_the_caller_alone_receives_what_was_sent() -> None:
    worlds = [functools.partial(Long, tag) for tag in range(2)]
    with shoal.make(worlds, backend="hybrid", num_workers=1) as envs:
        envs.reset(seed=0)
        envs.send(np.array([0]), env_ids=[0])
        envs.send(np.array([1]), env_ids=[1])
        assert envs.recv(min_envs=2).env_ids.tolist() == [0, 1]
