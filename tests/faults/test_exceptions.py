"""What an environment raises comes back whole: env, phase, seed, action, remote traceback."""

from __future__ import annotations

import functools
import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import ISOLATED, Make, Setting
from faults.conftest import Record
from shoal import ConfigError, EnvRaised
from shoal.testing import CountingWorld
from shoal.testing.saboteurs import Saboteur

NUM_ENVS, CULPRIT = 6, 4

KINDS = {
    "raise": "ValueError",
    "raise_unpicklable": "UnpicklableError",
    "raise_needs_args": "NeedsArgsError",
    "raise_percent": "ValueError",
    "sys_exit": "SystemExit",
}


PERCENT = "with %s %d in its text"
FEW = [Setting("serial", 1), Setting("thread", 2), *(s for s in ISOLATED if s.num_workers == 2)]
FIGURE = ("F3", "remote traceback, environment, seed and action", "shown")


def crew(**kwargs: Any) -> list[Any]:
    good = [functools.partial(CountingWorld, tag) for tag in range(NUM_ENVS)]
    good[CULPRIT] = functools.partial(Saboteur, tag=CULPRIT, **kwargs)
    return good


def zeros() -> np.ndarray:
    return np.zeros(NUM_ENVS, dtype=np.int64)


def check_traceback(error: EnvRaised, how: str) -> None:
    """The environment's own words and lines are part of what Python prints."""
    shown = "".join(traceback.format_exception(error))
    assert "mishap.py" in shown
    assert "sabotage in" in str(error) or how == "sys_exit"
    assert (PERCENT in str(error)) == (how == "raise_percent")


@pytest.mark.parametrize("how", KINDS)
def test_an_exception_in_step_comes_back_whole(make: Make, how: str, figure: Record) -> None:
    envs = make(crew(how=how, when="step", at_step=2))
    envs.reset(seed=30)
    envs.step(zeros())
    with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised {KINDS[how]} in step") as caught:
        envs.step(np.arange(NUM_ENVS) % 5)
    error = caught.value
    assert (error.env_ids, error.phase) == ((CULPRIT,), "step")
    assert "seed 34" in str(error)
    assert "action" in str(error)
    check_traceback(error, how)
    figure(*FIGURE)


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("when", ["construct", "reset"])
def test_an_exception_at_the_start_comes_back_whole(
    make: Make, how: str, when: str, figure: Record
) -> None:
    with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised {KINDS[how]} in {when}") as caught:
        make(crew(how=how, when=when)).reset(seed=30)
    assert (caught.value.env_ids, caught.value.phase) == ((CULPRIT,), when)
    check_traceback(caught.value, how)
    figure(*FIGURE)


@pytest.mark.parametrize("setting", FEW, ids=str, indirect=True)
@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("when", ["call", "render"])
def test_an_exception_in_a_call_comes_back_whole_and_harms_nobody(
    make: Make, how: str, when: str, figure: Record
) -> None:
    envs = make(crew(how=how, when=when))
    envs.reset(seed=30)
    with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised {KINDS[how]} in call") as caught:
        envs.render() if when == "render" else envs.call("poke", env_ids=[CULPRIT])
    assert (caught.value.env_ids, caught.value.phase) == ((CULPRIT,), "call")
    assert "seed 34" in str(caught.value)
    check_traceback(caught.value, how)
    envs.step(zeros())
    figure(*FIGURE)


@pytest.mark.parametrize("setting", FEW, ids=str, indirect=True)
@pytest.mark.parametrize("how", [*KINDS, "keyboard_interrupt"])
def test_an_exception_in_close_is_logged_and_close_goes_on(
    make: Make, setting: Setting, how: str, caplog: pytest.LogCaptureFixture, figure: Record
) -> None:
    envs = make(crew(how=how, when="close"))
    envs.reset(seed=0)
    if (setting.backend, how) == ("serial", "keyboard_interrupt"):
        with pytest.raises(KeyboardInterrupt):
            envs.close()
        return
    envs.close()
    assert envs.closed
    (told,) = [text for text in caplog.messages if "raised in close" in text]
    assert f"({CULPRIT},)" in told
    assert "mishap.py" in told
    assert (PERCENT in told) == (how == "raise_percent")
    figure(*FIGURE)


@pytest.mark.parametrize("setting", FEW, ids=str, indirect=True)
@pytest.mark.parametrize("when", ["construct", "reset", "step", "call"])
def test_a_keyboard_interrupt_of_an_environment_is_its_own(
    make: Make, setting: Setting, when: str, figure: Record
) -> None:
    with pytest.raises((KeyboardInterrupt, EnvRaised)) as caught:
        envs = make(crew(how="keyboard_interrupt", when=when))
        envs.reset(seed=0)
        envs.call("poke", env_ids=[CULPRIT])
        envs.step(zeros())
    if setting.backend == "serial":
        # In the caller's own process nobody can tell it from the user's Ctrl-C.
        assert isinstance(caught.value, KeyboardInterrupt)
        return
    assert f"env {CULPRIT} raised KeyboardInterrupt in {when}" in str(caught.value)
    assert "mishap.py" in "".join(traceback.format_exception(caught.value))
    figure(*FIGURE)


def test_the_others_have_stepped_and_a_reset_goes_on(make: Make) -> None:
    envs = make(crew(how="raise", when="step", at_step=2, at_episode=0))
    envs.reset(seed=0)
    envs.step(zeros())
    with pytest.raises(EnvRaised):
        envs.step(zeros())
    assert [envs.call("record", env_ids=[i])[0].step for i in (0, 5)] == [2, 2]
    envs.reset(seed=0)
    envs.step(zeros())


def test_failures_at_the_same_time_are_all_told(make: Make) -> None:
    envs = make([functools.partial(Saboteur, "raise", "step", tag=tag) for tag in range(4)])
    envs.reset(seed=0)
    with pytest.raises(EnvRaised, match="env 0 raised") as caught:
        envs.step(np.zeros(4, dtype=np.int64))
    assert [other.env_ids for other in caught.value.others] == [(1,), (2,), (3,)]


def test_a_failure_in_a_sent_step_is_raised_by_recv_and_loses_nobody(make: Make) -> None:
    envs = make(crew(how="raise", when="step"))
    envs.reset(seed=0)
    envs.send(zeros())
    with pytest.raises(EnvRaised, match="env 4"):
        while True:
            envs.recv(min_envs=envs._pool.post.num_sent)
    got: list[int] = []
    while envs._pool.post.num_sent:
        got += envs.recv(min_envs=1).env_ids.tolist()
    assert CULPRIT not in got


def test_an_info_that_cannot_travel_is_explained(make: Make, setting: Setting) -> None:
    class Leaky(CountingWorld):
        def step(self, action: Any) -> Any:
            import threading

            return (*super().step(action)[:4], {"lock": threading.Lock()})

    envs = make(Leaky, 3)
    envs.reset(seed=0)
    if setting.backend in ("process", "hybrid"):
        with pytest.raises(EnvRaised, match=r"info\['lock'\] is a lock, which cannot be sent"):
            envs.step(np.zeros(3, dtype=np.int64))
    else:
        assert envs.step(np.zeros(3, dtype=np.int64))[4]["_lock"].all()


def test_environments_that_differ_are_refused_naming_the_key(make: Make) -> None:
    worlds = [functools.partial(CountingWorld, 0, obs="dict") for _ in range(3)]
    worlds[2] = functools.partial(CountingWorld, 0, obs="vector")
    with pytest.raises(ConfigError, match="observation space of env 2 differs from that of env 0"):
        make(worlds)
    other = [functools.partial(CountingWorld, 0) for _ in range(3)]
    other[1] = functools.partial(CountingWorld, 0, action="box")
    with pytest.raises(ConfigError, match="action space of env 1 differs"):
        make(other)


def test_an_exception_that_only_the_worker_knows_comes_back_whole(tmp_path: Path) -> None:
    (tmp_path / "simulator_errors.py").write_text("class LicenceError(Exception): pass\n")

    class Licensed(CountingWorld):
        def step(self, action: Any) -> Any:
            sys.path.append(str(tmp_path))
            raise importlib.import_module("simulator_errors").LicenceError("no licence")

    with shoal.make(Licensed, 2, backend="process", num_workers=1) as envs:
        envs.reset(seed=30)
        with pytest.raises(EnvRaised, match="env 0 raised LicenceError in step") as caught:
            envs.step(np.zeros(2, dtype=np.int64))
        assert caught.value.env_ids == (0,)
        assert "simulator_errors.LicenceError: no licence" in str(caught.value.__cause__)
