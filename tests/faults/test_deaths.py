"""Does a worker die well? Always an error that names the cause, never a hang."""

from __future__ import annotations

import functools
import os
import signal
from typing import Any

import numpy as np
import psutil
import pytest

import shoal
from conftest import ISOLATED, Setting
from faults.conftest import Record
from shoal import Faults, WorkerDied, WorkerTimeout
from shoal.testing import CountingWorld
from shoal.testing.saboteurs import EXIT_CODE, Saboteur

NUM_ENVS, CULPRIT = 6, 4

DEATHS = {
    "sigkill": "was killed by SIGKILL",
    "sigsegv": "was killed by SIGSEGV",
    "abort": "was killed by SIGABRT",
    "os_exit": f"exited with code {EXIT_CODE}",
}


def crew(**kwargs: Any) -> list[Any]:
    good = [functools.partial(CountingWorld, tag) for tag in range(NUM_ENVS)]
    good[CULPRIT] = functools.partial(Saboteur, tag=CULPRIT, **kwargs)
    return good


def zeros() -> np.ndarray:
    return np.zeros(NUM_ENVS, dtype=np.int64)


@pytest.fixture(params=[s for s in ISOLATED if s.num_workers == 2], ids=str)
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    chosen: Setting = request.param
    if chosen.portable:
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
    return {"backend": "process", "num_workers": 2, "on_failure": "raise"}


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("when", ["construct", "reset", "step", "call"])
def test_a_death_is_an_error_that_names_its_cause(
    where: dict[str, Any], how: str, when: str, figure: Record
) -> None:
    with pytest.raises(WorkerDied, match=DEATHS[how]) as caught:
        with shoal.make(crew(how=how, when=when), **where) as envs:
            envs.reset(seed=0)
            if when == "call":
                envs.call("poke")
            envs.step(zeros())
    error = caught.value
    assert error.worker == 1
    assert error.phase == when
    assert CULPRIT in error.env_ids
    assert f"env {CULPRIT}" in str(error)
    assert error.pid is not None
    assert not psutil.pid_exists(error.pid)
    figure("F2", "signal or exit code, phase and environments", "named")


def test_a_segfault_shows_where_it_happened(where: dict[str, Any]) -> None:
    with pytest.raises(WorkerDied, match="Segmentation fault"):
        with shoal.make(crew(how="sigsegv", when="step"), **where) as envs:
            envs.reset(seed=0)
            envs.step(zeros())


@pytest.mark.parametrize("start_method", ["forkserver", "spawn", "fork"])
def test_a_death_between_calls_is_noticed_by_the_next(start_method: str) -> None:
    with shoal.make(
        CountingWorld,
        4,
        backend="process",
        num_workers=2,
        start_method=start_method,
        on_failure="raise",
    ) as envs:
        envs.reset(seed=0)
        victim = envs._pool.workers[1].pid
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="SIGKILL"):
            envs.step(np.zeros(4, dtype=np.int64))
        with pytest.raises(WorkerDied):
            envs.call("tag")


@pytest.mark.parametrize(("how", "error"), [("sigkill", WorkerDied), ("hang_sleep", WorkerTimeout)])
def test_what_is_lost_is_told_again_as_the_same_error_and_as_one_incident(
    where: dict[str, Any], how: str, error: type[shoal.WorkerError]
) -> None:
    limit = {"step_timeout_s": 0.3} if error is WorkerTimeout else {}
    with shoal.make(crew(how=how, when="step"), **limit, **where) as envs:
        envs.reset(seed=0)
        told = []
        for _ in range(3):
            with pytest.raises(error) as caught:
                envs.step(zeros())
            told.append(str(caught.value) + "".join(getattr(caught.value, "__notes__", ())))
        assert len(set(told)) == 1
        assert envs.stats()["num_incidents"] == 1


def test_a_death_in_a_sent_step_is_raised_by_recv(where: dict[str, Any]) -> None:
    with shoal.make(crew(how="sigkill", when="step"), **where) as envs:
        envs.reset(seed=0)
        envs.send(zeros())
        with pytest.raises(WorkerDied, match="in step of env 4"):
            envs.recv()
        # The other worker's environments are not lost.
        assert envs.recv().env_ids.tolist() == [0, 1, 2]
        envs.send(zeros()[:3], env_ids=[0, 1, 2])
        assert envs.recv().env_ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize("how", ["hang_sleep", "hang_spin"])
@pytest.mark.parametrize("when", ["reset", "step"])
def test_a_hang_is_ended_after_its_time(where: dict[str, Any], how: str, when: str) -> None:
    with pytest.raises(WorkerTimeout, match=f"env {CULPRIT} has been in {when}") as caught:
        with shoal.make(crew(how=how, when=when), step_timeout_s=0.3, **where) as envs:
            envs.reset(seed=0)
            envs.step(zeros())
    assert not psutil.pid_exists(caught.value.pid or 0)


def test_the_time_limit_is_for_one_environment_not_for_the_batch(where: dict[str, Any]) -> None:
    slow = [functools.partial(CountingWorld, tag, work_s=0.1) for tag in range(8)]
    with shoal.make(slow, step_timeout_s=0.35, **where) as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step(np.zeros(8, dtype=np.int64))  # 0.4 s per worker, 0.1 s per environment


def test_a_constructor_that_hangs_is_ended_too(where: dict[str, Any]) -> None:
    with pytest.raises(WorkerTimeout, match="construct of env 4"):
        shoal.make(
            crew(how="hang_sleep", when="construct"), faults=Faults(start_timeout_s=5.0), **where
        )


@pytest.mark.parametrize("how", ["hang_sleep", "sigkill"])
def test_close_ends_whatever_the_worker_is_at(where: dict[str, Any], how: str) -> None:
    envs = shoal.make(crew(how=how, when="step"), **where)
    envs.reset(seed=0)
    workers = [psutil.Process(worker.pid) for worker in envs._pool.workers]
    envs.send(zeros())
    envs.close(timeout_s=0.5)
    _, alive = psutil.wait_procs(workers, timeout=2)
    assert not alive


def test_a_constructor_that_ends_its_worker_leaves_a_capsule(where: dict[str, Any]) -> None:
    class Fatal(CountingWorld):
        def __init__(self) -> None:
            os._exit(5)

    with pytest.raises(WorkerDied, match="in construct of env 0") as caught:
        shoal.make(Fatal, 2, **where)
    assert caught.value.capsule is not None
    (note,) = caught.value.__notes__
    assert note == f"To replay it in one process: shoal replay {caught.value.capsule}"
