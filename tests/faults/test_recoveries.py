"""Recoveries that are disturbed themselves: by Ctrl-C, by the server's end, by calls."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import shoal
from conftest import ISOLATED, Setting
from faults.conftest import Scale
from faults.recovering import Shadows, cast, kill_worker, worlds
from shoal import WorkerDied
from shoal.testing import CountingWorld
from shoal.testing.worlds import decode
from trace_of import assert_same

ZEROS = np.zeros(4, dtype=np.int64)


class SlowToStart(CountingWorld):
    """Takes its time to be built, once a file says so."""

    def __init__(self, tag: int, *, path: Any, **kwargs: Any) -> None:
        if Path(path).exists():
            time.sleep(0.15)
        super().__init__(tag, **kwargs)


@contextmanager
def ctrl_c_after(delay_s: float) -> Iterator[None]:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(delay_s, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


@pytest.mark.parametrize("on_failure", ["restart", "replay"])
def test_ctrl_c_during_a_recovery_leaves_everything_usable(
    on_failure: str, tmp_path: Path, scale: Scale
) -> None:
    factories = worlds(4, SlowToStart, path=tmp_path / "slow", history=False)
    given: dict[str, Any] = {"backend": "process", "num_workers": 2, "on_failure": on_failure}
    draw = random.Random(0)
    with shoal.make(factories, **given) as envs:
        (tmp_path / "slow").touch()
        for _ in range(scale(short=2, full=30)):
            envs.reset(seed=0)
            envs.step(ZEROS)
            kill_worker(envs, 1)
            with pytest.raises(KeyboardInterrupt), ctrl_c_after(draw.uniform(0.05, 0.25)):
                envs.step(ZEROS)
            envs.step(ZEROS)
            records = envs.call("record")
            assert [record.step for record in records[:2]] == [3, 3]
            if on_failure == "replay":
                assert [record.step for record in records[2:]] == [3, 3]
            observations, _ = envs.reset(seed=50)
            assert [decode(row) for row in observations] == list(envs.call("record"))


@pytest.mark.parametrize("on_failure", ["restart", "replay"])
def test_ctrl_c_in_recv_during_a_recovery_loses_nothing(on_failure: str, tmp_path: Path) -> None:
    factories = worlds(4, SlowToStart, path=tmp_path / "slow", history=False)
    given: dict[str, Any] = {"backend": "process", "num_workers": 2, "on_failure": on_failure}
    with shoal.make(factories, **given) as envs:
        (tmp_path / "slow").touch()
        envs.reset(seed=0)
        kill_worker(envs, 1)
        envs.send(ZEROS)
        with pytest.raises(KeyboardInterrupt), ctrl_c_after(0.2):
            envs.recv(4)
        batch = envs.recv(4)
        told = batch.infos.get("restarted", np.zeros(4, bool))
        assert told.tolist() == [False, False] + [on_failure == "restart"] * 2
        assert [decode(row).step for row in batch.observations[:2]] == [1, 1]
        if on_failure == "replay":
            assert [decode(row).step for row in batch.observations[2:]] == [1, 1]


class CtrlC:
    """Comes when it is told to, and is heard only where the test wants to hear it."""

    is_heard = has_come = False

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGINT, self._handle)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def come_after(self, delay_s: float) -> None:
        self.has_come = False
        main = threading.main_thread().ident
        threading.Timer(delay_s, signal.pthread_kill, (main, signal.SIGINT)).start()

    def _handle(self, *_: object) -> None:
        self.has_come = True
        if self.is_heard:
            raise KeyboardInterrupt


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_ctrl_c_at_any_moment_never_takes_an_answer_away(backend: str, scale: Scale) -> None:
    draw, ctrl_c = random.Random(0), CtrlC()
    with shoal.make(worlds(4, work_s=0.0005), backend=backend, num_workers=2) as envs, ctrl_c:
        envs.reset(seed=0)
        for _ in range(scale(short=60, full=1000)):
            ctrl_c.come_after(draw.uniform(0.0005, 0.01))
            try:
                ctrl_c.is_heard = True
                while not ctrl_c.has_come:
                    envs.step(ZEROS)
            except KeyboardInterrupt:
                pass
            ctrl_c.is_heard = False
            envs.step(ZEROS)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "portable"])
@pytest.mark.parametrize("on_failure", ["restart", "replay"])
def test_the_end_of_the_server_is_recovered_from(
    start_method: str, on_failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"start_method": start_method}
    if start_method == "portable":
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
        given = {}
    factories = worlds(4, history=False)
    given |= {"backend": "process", "num_workers": 2, "on_failure": on_failure}
    with shoal.make(factories, **given) as envs:
        envs.reset(seed=0)
        before = envs.step(ZEROS)[0]
        for _ in range(2):
            workers = [psutil.Process(worker.pid) for worker in envs._pool.workers]
            server = workers[0].parent()
            assert server is not None
            assert {worker.ppid() for worker in workers} == {server.pid}
            server.kill()
            psutil.wait_procs(workers, timeout=5)
            observations, *_, infos = envs.step(ZEROS)
            if on_failure == "restart":
                assert infos["restarted"].all()
                assert_same(observations, before)
            else:
                assert "restarted" not in infos
                assert [decode(row).step for row in observations] == [
                    decode(row).step + 1 for row in before
                ]
            before = envs.step(ZEROS)[0]
        assert envs.stats()["num_incidents"] == 4
        children = [psutil.Process(worker.pid) for worker in envs._pool.workers]
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive


@pytest.mark.parametrize("setting", ISOLATED[1:], ids=str, indirect=True)
@pytest.mark.parametrize("on_failure", ["restart", "replay"])
def test_a_call_to_a_dead_worker_finds_it_rebuilt(setting: Setting, on_failure: str) -> None:
    given: dict[str, Any] = {"num_workers": setting.num_workers, "on_failure": on_failure}
    with shoal.make(worlds(6, history=False), backend="process", **given) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(6, dtype=np.int64))
        kill_worker(envs, 1)
        assert envs.get_attr("tag") == tuple(range(6))
        kill_worker(envs, 0)
        records = envs.call("record")
        assert [record.tag for record in records] == list(range(6))
        if on_failure == "replay":
            assert [record.step for record in records] == [1] * 6
        infos = envs.step(np.zeros(6, dtype=np.int64))[4]
        assert ("restarted" in infos) == (on_failure == "restart")
        assert envs.stats()["num_incidents"] == 2


def test_a_call_that_kills_is_an_error_and_the_worker_is_rebuilt(tmp_path: Path) -> None:
    factories = cast(4, 2, tmp_path, [("call", "sigkill")])
    with shoal.make(factories, backend="process", num_workers=2) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDied, match="in call of env 2"):
            envs.call("poke", env_ids=[2])
        assert envs.call("poke", env_ids=[2]) == ("poked 2",)
        infos = envs.step(ZEROS)[4]
        assert infos["restarted"].tolist() == [False, False, True, True]
        assert envs.stats()["num_incidents"] == 1


def test_with_replay_a_call_that_kills_is_made_once_more(tmp_path: Path) -> None:
    script = [("call", "sigkill"), ("call", "none"), ("call", "sigkill"), ("call", "sigkill")]
    factories = cast(4, 2, tmp_path, script, history=False)
    with shoal.make(factories, backend="process", num_workers=2, on_failure="replay") as envs:
        envs.reset(seed=0)
        envs.step(ZEROS)
        assert envs.call("poke", env_ids=[2]) == ("poked 2",)
        with pytest.raises(WorkerDied, match="in call of env 2"):
            envs.call("poke", env_ids=[2])
        assert "restarted" not in envs.step(ZEROS)[4]
        assert [record.step for record in envs.call("record")] == [2] * 4
        assert envs.stats()["num_incidents"] == 3


def test_a_call_beside_sent_steps_survives_a_death() -> None:
    with shoal.make(worlds(4, work_s=0.01), backend="process", num_workers=2) as envs:
        shadows = Shadows(envs, "next_step", seed=4)
        for _ in range(4):
            shadows.send([0, 2])
            kill_worker(
                envs, 1
            )  # in its step, which nobody has looked after: the call waits for it
            assert envs.get_attr("tag", env_ids=[1, 3]) == (1, 3)
            shadows.recv(2)
            shadows.step()


def test_closing_in_the_middle_of_a_recovery_leaves_nothing_behind(tmp_path: Path) -> None:
    factories = worlds(4, SlowToStart, path=tmp_path / "slow")
    before = set(psutil.Process().children(recursive=True))
    envs = shoal.make(factories, backend="process", num_workers=2)
    (tmp_path / "slow").touch()
    envs.reset(seed=0)
    kill_worker(envs, 1)
    envs.send(ZEROS)
    with pytest.raises(TimeoutError):
        envs.recv(4, timeout_s=0.1)
    envs.close(timeout_s=0.5)
    left = set(psutil.Process().children(recursive=True)) - before
    _, alive = psutil.wait_procs(left, timeout=3)
    assert not alive
