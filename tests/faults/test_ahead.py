"""Steps that are put ahead: a worker goes on by itself, unless the caller has to hear of something.

Whatever becomes of the step before, or of the one ahead, each environment takes every step once.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.recovering import Shadows
from shoal.engine.backends import Worker
from shoal.engine.backends.process.header import (
    AHEAD,
    ANSWER,
    COMMAND,
    STEP_SOME,
    WANTED,
    WORDS,
)
from shoal.engine.backends.process.inside import SignalChannel
from shoal.engine.commands import Step
from shoal.engine.pace import Pace
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


def test_a_worker_gets_the_same_halves_again_and_again() -> None:
    """Half of what it has is not halved once more, though it has nothing else to do."""
    with make() as envs:
        (seat,) = envs._pool.seats
        envs.send(np.ones(NUM_ENVS, dtype=np.int64))
        assert wait_until_idle(seat.worker)
        assert len(envs.recv(min_envs=2).env_ids) == NUM_ENVS  # from here on it takes parts
        envs.send(np.array([1, 1]), [0, 1])
        assert seat.flight is not None
        assert (seat.flight.sent, seat.ahead) == ([0, 1], None)
        envs.send(np.array([1, 1]), [2, 3])
        assert seat.ahead is not None
        assert seat.ahead.sent == [2, 3]
        assert envs.recv(min_envs=4).env_ids.tolist() == [0, 1, 2, 3]


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


def test_every_batch_holds_some_of_the_callers_own() -> None:
    worlds = [partial(CountingWorld, tag) for tag in range(8)]
    with shoal.make(worlds, backend="hybrid", num_workers=2, batch_size=4) as envs:
        envs.reset(seed=0)
        envs.send(np.ones(8, dtype=np.int64))
        for _ in range(50):
            batch = envs.recv()
            assert (batch.env_ids < 4).any()
            envs.send(np.ones(len(batch.env_ids), dtype=np.int64), batch.env_ids)


# --- what the worker reads while the caller writes ----------------------------------------------


class Changing(list[int]):
    """Words that the caller changes after one of them was read."""

    def __init__(self, after: int) -> None:
        super().__init__([0] * WORDS)
        self._after = after
        self[ANSWER] = 4 << 2
        self[COMMAND] = 4 << 3 | STEP_SOME
        self[AHEAD] = 5 << 3 | STEP_SOME + 1

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(index)
        if index == self._after:
            self._after = -1
            self[COMMAND] = super().__getitem__(AHEAD)  # number 4 has landed, ...
            self[AHEAD] = 6 << 3 | STEP_SOME  # ... and here is number 6
        return value


class Signalled:
    """One signal, and no other."""

    def __init__(self) -> None:
        self._left = 1

    def wait(self, *_: Any) -> bool:
        self._left -= 1
        assert self._left == 0, "it waits for another signal"
        return True


@pytest.mark.parametrize("after", [COMMAND, AHEAD, ANSWER])
def test_a_step_is_not_overlooked_while_it_becomes_the_command(after: int) -> None:
    channel = object.__new__(SignalChannel)
    channel._first, channel._goes_on, channel._number = None, True, 4
    channel._words, channel._go, channel._spin = Changing(after), Signalled(), None  # type: ignore[assignment]
    channel._steps = {STEP_SOME + k: Step(k, everyone=False) for k in (0, 1)}
    assert channel.get() == Step(1, everyone=False)
    assert channel._number == 5


# --- beside other things ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_those_who_move_lose_no_step(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may be set apart at any time, whatever is under way, ahead or waiting."""
    draw, count = random.Random(5), 6
    monkeypatch.setattr(Pace, "note", lambda *_: draw.random() < 0.3)
    monkeypatch.setattr(Pace, "slow", lambda _: {draw.randrange(count)})
    worlds = [partial(CountingWorld, tag, history=False, work_s=0.0005) for tag in range(count)]
    with shoal.make(worlds, backend="process", num_workers=2, autoreset=mode) as envs:
        shadows, idle = Shadows(envs, mode, seed=2, history=False), list(range(count))
        for turn in range(400):
            shadows.send(sorted(idle))
            idle = shadows.recv(2)
            if turn % 80 == 79:  # those who were set apart come back
                shadows.recv(count - len(idle))
                envs.resize(num_workers=2)
                idle = list(range(count))


def test_those_who_get_another_worker_lose_no_step() -> None:
    worlds = [partial(CountingWorld, tag, history=False) for tag in range(8)]
    draw = random.Random(3)
    with shoal.make(worlds, backend="process", num_workers=2) as envs:
        shadows = Shadows(envs, "next_step", seed=2, history=False)
        for turn in range(12):
            envs.resize(num_workers=1 + turn % 3)
            shadows.send(range(8))
            for _ in range(25):
                for env_id in draw.sample(ids := shadows.recv(1), len(ids)):
                    shadows.send([env_id])
            shadows.recv(8)


class Total(CountingWorld):
    """Knows how many steps it has taken in all, and those of worker 1 take a while."""

    total = 0

    def step(self, action: Any) -> Any:
        if self.tag >= 3:
            time.sleep(0.05)
        self.total += 1
        return super().step(action)


def test_ctrl_c_while_one_worker_is_written_down_doubles_nothing_of_another() -> None:
    worlds = [partial(Total, tag) for tag in range(6)]
    with shoal.make(worlds, backend="process", num_workers=2) as envs:
        envs.reset(seed=0)
        for env_id in (0, 3, 4, 5):  # one under way, one ahead, one that waits
            envs.send(np.array([1]), [env_id])
        books = envs._pool.books
        record = books.record

        def interrupted(*_: Any) -> None:
            books.record = record  # type: ignore[method-assign]
            raise KeyboardInterrupt

        books.record = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            envs.recv(min_envs=1)
        received: list[int] = []
        while envs._pool.post.num_sent:
            received += envs.recv(min_envs=1).env_ids.tolist()
        assert sorted(received) == [0, 3, 4, 5]
        assert envs.get_attr("total") == (1, 0, 0, 1, 1, 1)


def refused_call(envs: shoal.VectorEnv) -> None:
    envs.call("echo", threading.Lock(), env_ids=[3])


def refused_attribute(envs: shoal.VectorEnv) -> None:
    envs.set_attr("bonus", threading.Lock(), env_ids=[3])


def refused_reset(envs: shoal.VectorEnv) -> None:
    envs.reset_envs([3], options={"task": threading.Lock()})


@pytest.mark.parametrize("refused", [refused_call, refused_attribute, refused_reset])
def test_what_waits_is_begun_also_when_a_call_was_refused(refused: Any) -> None:
    with make() as envs:
        for env_id in range(3):
            envs.send(np.array([1]), [env_id])
        with pytest.raises(TypeError, match="pickle"):
            refused(envs)
        assert envs.recv(min_envs=3).env_ids.tolist() == [0, 1, 2]


def test_after_ctrl_c_nobody_rings_for_a_caller_who_does_not_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with make() as envs:
        backend: Any = envs._pool.backend
        assert backend._bell is not None

        def interrupted(waits: bool, *_: Any) -> bool:
            if waits:
                assert backend._header.common[WANTED] > 0
                raise KeyboardInterrupt
            return False

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(backend._bell, "acquire", interrupted)
            backend.listen(1.0, backend.done() + 1)
        assert backend._header.common[WANTED] == 0


def test_nobody_rings_before_as_much_is_done_as_the_caller_wants() -> None:
    with make() as envs:
        backend: Any = envs._pool.backend
        (worker,) = envs._pool.workers
        heard, common = backend._bell.acquire, backend._header.common
        common[WANTED] = backend.done() + 3
        envs.send(np.array([1, 1]), [0, 1])
        assert wait_until_idle(worker)
        envs.send(np.array([1]), [2])
        assert heard(True, PATIENCE_S)
        assert envs.recv().env_ids.tolist() == [0, 1, 2]
        common[WANTED] = 0
        envs.call("record")
        assert not heard(False)
        common[WANTED] = backend.done() + 1000
        envs.call("record")  # anything but a step is worth a look
        assert heard(True, PATIENCE_S)
        common[WANTED] = 0


class Gated(CountingWorld):
    """No step is over before there is a file."""

    def __init__(self, gate: Path, tag: int) -> None:
        super().__init__(tag)
        self._gate = gate

    def step(self, action: Any) -> Any:
        until = time.monotonic() + PATIENCE_S
        while not self._gate.exists() and time.monotonic() < until:
            time.sleep(0.001)
        return super().step(action)


def test_the_caller_waits_once_for_all_that_is_missing(tmp_path: Path) -> None:
    gate, wanted_of = tmp_path / "open", []
    worlds = [partial(Gated, gate, tag) for tag in range(NUM_ENVS)]
    with shoal.make(worlds, backend="process", num_workers=NUM_ENVS) as envs:
        envs.reset(seed=0)
        backend: Any = envs._pool.backend
        listen = backend.listen

        def watched(timeout_s: float, wanted: int) -> None:
            wanted_of.append(wanted - backend.done())
            gate.touch()
            listen(timeout_s, wanted)

        backend.listen = watched
        envs.send(np.ones(NUM_ENVS, dtype=np.int64))
        assert len(envs.recv().env_ids) == NUM_ENVS
    assert wanted_of[0] == NUM_ENVS


@pytest.mark.parametrize("backend_name", ["process", "hybrid"])
def test_what_the_caller_waits_for_is_never_more_than_is_under_way(backend_name: Any) -> None:
    rng = np.random.default_rng(0)
    worlds = [partial(CountingWorld, tag) for tag in range(8)]
    waits = 0
    with shoal.make(worlds, backend=backend_name, num_workers=2) as envs:
        envs.reset(seed=0)
        pool: Any = envs._pool
        backend = pool.backend
        listen = backend.listen

        def watched(timeout_s: float, wanted: int) -> None:
            nonlocal waits
            waits += 1
            left = 0
            for seat in pool.seats:
                if seat.flight is not None and not seat.worker.has_answered():
                    left += len(seat.flight.sent)
                if seat.ahead is not None and not seat.worker.is_idle():
                    left += len(seat.ahead.sent)
            until = time.monotonic() + PATIENCE_S
            while backend.done() + left < wanted and time.monotonic() < until:
                time.sleep(0.001)  # it has answered, and counts that next
            assert backend.done() + left >= wanted
            listen(timeout_s, wanted)

        backend.listen = watched
        idle = set(range(8))
        for _ in range(300):
            chosen = [i for i in sorted(idle) if rng.random() < 0.7] or sorted(idle)[:1]
            if chosen:
                envs.send(np.ones(len(chosen), dtype=np.int64), chosen)
            idle -= set(chosen)
            idle |= set(envs.recv(min_envs=int(rng.integers(1, 9 - len(idle)))).env_ids.tolist())
    assert waits


def test_a_replaced_worker_takes_nothing_back_of_what_was_done() -> None:
    with make() as envs:
        backend: Any = envs._pool.backend
        for _ in range(20):
            envs.call("record")
        before = backend.done()
        (worker,) = envs._pool.workers
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        envs.send(np.array([1]), [0])
        assert envs.recv().env_ids.tolist() == [0]
        assert envs._pool.workers != [worker]
        assert backend.done() > before


class Stuck(CountingWorld):
    """One of them never comes back from a step."""

    def step(self, action: Any) -> Any:
        if self.tag == 7:
            time.sleep(1e6)
        return super().step(action)


def test_the_caller_steps_more_of_its_own_while_others_take_long() -> None:
    worlds = [partial(Stuck, tag) for tag in range(8)]
    with shoal.make(worlds, backend="hybrid", num_workers=2, batch_size=3) as envs:
        envs.reset(seed=0)
        envs.send(np.ones(8, dtype=np.int64))
        for _ in range(6):
            batch = envs.recv(timeout_s=PATIENCE_S)
            envs.send(np.ones(len(batch.env_ids), dtype=np.int64), batch.env_ids)
        envs.close(timeout_s=0.1)
