"""Does `backend="auto"` measure, choose, remember, and stay out of the way?"""

from __future__ import annotations

import functools
import logging
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

import shoal
from shoal.engine import probe as probing
from shoal.errors import ConfigError, EnvRaised
from shoal.testing import CountingWorld, Saboteur
from shoal.vector import auto, memo

CORES = shoal.engine.machine.usable_cores()


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has been measured yet."""
    monkeypatch.setenv("SHOAL_CACHE", "off")
    monkeypatch.setattr(memo, "_known", {})


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was measured, in order."""
    found: list[Any] = []

    def listen(*args: Any) -> Any:
        found.append(probing.probe(*args))
        return found[-1]

    monkeypatch.setattr(auto, "probe", listen)
    return found


def test_a_cheap_environment_stays_with_the_caller(probes: list[Any]) -> None:
    with shoal.make("CartPole-v1", 64) as envs:
        assert envs.stats()["backend"] == ("hybrid" if CORES > 1 else "serial")
        assert "cheap" in envs.stats()["reason"]
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
    assert len(probes) == 1


def test_a_dear_environment_gets_worker_processes(probes: list[Any]) -> None:
    with shoal.make(functools.partial(CountingWorld, work_s=5e-3), 4) as envs:
        assert envs.stats()["backend"] == "process"
        assert envs.stats()["num_workers"] == min(4, CORES)
        assert "a step takes" in envs.stats()["reason"]


def test_an_environment_that_waits_gets_more_workers_than_cores() -> None:
    class Sleeper(CountingWorld):
        def step(self, action: Any) -> Any:
            threading.Event().wait(0.005)
            return super().step(action)

    num_envs = CORES + 3
    with shoal.make(Sleeper, num_envs) as envs:
        assert envs.stats()["backend"] == "process"
        assert envs.stats()["num_workers"] == num_envs
        assert "more workers than cores" in envs.stats()["reason"]


@pytest.mark.parametrize(
    "asked",
    [
        {"step_timeout_s": 30.0},
        {"batch_size": 2},
        {"on_failure": "replay"},
        {"faults": shoal.Faults(max_worker_rss_mb=10_000)},
    ],
    ids=lambda asked: next(iter(asked)),
)
@pytest.mark.parametrize("num_envs", [2, CORES + 1])
def test_what_needs_isolation_gets_it(asked: dict[str, Any], num_envs: int) -> None:
    with shoal.make("CartPole-v1", num_envs, **asked) as envs:
        assert envs.stats()["backend"] == "process"
        assert "isolation" in envs.stats()["reason"]


def test_a_named_backend_is_not_measured_for(probes: list[Any]) -> None:
    for backend in ("serial", "thread", "hybrid", "process"):
        with shoal.make("CartPole-v1", 4, backend=backend) as envs:
            assert envs.stats()["reason"] == "as asked"
    assert probes == []


def test_one_environment_is_not_measured_for(probes: list[Any]) -> None:
    with shoal.make("CartPole-v1", 1) as envs:
        assert envs.stats()["backend"] == "serial"
    assert probes == []


def test_the_same_environment_is_measured_once(probes: list[Any]) -> None:
    for num_envs in (2, 8, 64):
        with shoal.make("CartPole-v1", num_envs):
            pass
    assert len(probes) == 1


def test_another_process_need_not_measure_again(
    probes: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_CACHE", "on")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        memo.forget()
        with shoal.make("CartPole-v1", 8):
            pass
    assert len(probes) == 1


def test_it_says_in_one_line_of_the_log_what_it_chose(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shoal")
    with shoal.make("CartPole-v1", 64) as envs:
        stats = envs.stats()
    (record,) = [record for record in caplog.records if "backend=" in record.getMessage()]
    assert record.levelno == logging.INFO
    assert repr(stats["backend"]) in record.getMessage()
    assert stats["reason"] in record.getMessage()


def test_workers_told_are_workers_had() -> None:
    with shoal.make(functools.partial(CountingWorld, work_s=5e-3), 5, num_workers=3) as envs:
        assert envs.stats()["num_workers"] == 3


def test_vector_environments_need_no_word_about_workers() -> None:
    from gymnasium.vector import SyncVectorEnv

    def three() -> SyncVectorEnv:
        from gymnasium.vector import AutoresetMode

        return SyncVectorEnv([CountingWorld] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)

    with shoal.make(three, 3) as envs:
        envs.reset(seed=0)
        envs.step([0, 0, 0])


# --- what goes wrong is told by the real construction ----------------------------------------


def test_an_exception_in_a_constructor_is_the_pools_to_raise() -> None:
    with pytest.raises(EnvRaised, match="env 0 raised ValueError in construct") as caught:
        shoal.make(functools.partial(Saboteur, "raise", "construct"), 2)
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_is_wrong_only_in_steps_is_found_in_steps() -> None:
    with shoal.make(functools.partial(Saboteur, "raise", "step", at_step=2), 2) as envs:
        assert envs.stats()["backend"] == "process"
        assert "raised" in envs.stats()["reason"]
        envs.reset(seed=0)
        envs.step([0, 0])
        with pytest.raises(EnvRaised):
            envs.step([0, 0])


def test_what_kills_its_process_is_isolated() -> None:
    with shoal.make(functools.partial(Saboteur, "sigkill", "step", at_step=2), 2) as envs:
        assert envs.stats()["backend"] == "process"
        envs.reset(seed=0)
        envs.step([0, 0])
        *_, infos = envs.step([0, 0])
        assert infos["restarted"].all()


def test_a_factory_that_cannot_travel_is_explained_by_the_pool() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="cannot be pickled"):
        shoal.make(lambda: CountingWorld(lock), 2)


def test_a_constructor_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe, that is: it is given up, and the pool gets its own chance."""
    monkeypatch.setattr(probing, "DEADLINE_S", 0.5)
    with pytest.raises(shoal.WorkerTimeout):
        shoal.make(
            functools.partial(Saboteur, "hang_sleep", "construct"),
            2,
            faults=shoal.Faults(start_timeout_s=1.0),
        )


def test_steps_that_hang_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "DEADLINE_S", 0.5)
    with shoal.make(functools.partial(Saboteur, "hang_sleep", "step"), 2) as envs:
        assert envs.stats()["backend"] == "process"
        assert "not through after 0.5 s" in envs.stats()["reason"]


def test_nothing_of_the_probe_is_left() -> None:
    with shoal.make("CartPole-v1", 1, backend="process"):  # the zygote of the test run is there
        before = set(psutil.Process().children(recursive=True))
    before = set(psutil.Process().children(recursive=True)) & before
    shoal.make("CartPole-v1", 8).close()
    _, alive = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, 20)
    assert alive == []


def test_the_callers_share_of_a_probe_is_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Environments are built in the caller only where they live there: no extra one."""
    with shoal.make(Counted, 4) as envs:
        stats = envs.stats()
    here = {"serial": 4, "hybrid": len(range(4 // stats["num_workers"])), "process": 0}
    assert Counted.made == here[stats["backend"]]


class Counted(CountingWorld):
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        super().__init__()
