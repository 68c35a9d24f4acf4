"""What an environment raises comes back whole: env, phase, seed, action, remote traceback."""

from __future__ import annotations

import functools
import traceback
from typing import Any

import numpy as np
import pytest

from conftest import Make, Setting
from shoal import ConfigError, ContractError, EnvRaised, Faults
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


def crew(**kwargs: Any) -> list[Any]:
    good = [functools.partial(CountingWorld, tag) for tag in range(NUM_ENVS)]
    good[CULPRIT] = functools.partial(Saboteur, tag=CULPRIT, **kwargs)
    return good


def zeros() -> np.ndarray:
    return np.zeros(NUM_ENVS, dtype=np.int64)


@pytest.mark.parametrize("how", KINDS)
def test_an_exception_in_step_comes_back_whole(make: Make, how: str) -> None:
    envs = make(crew(how=how, when="step", at_step=2))
    envs.reset(seed=30)
    envs.step(zeros())
    with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised {KINDS[how]} in step") as caught:
        envs.step(np.arange(NUM_ENVS) % 5)
    error = caught.value
    assert (error.env_ids, error.phase) == ((CULPRIT,), "step")
    assert "seed 34" in str(error)
    assert "action" in str(error)
    shown = "".join(traceback.format_exception(error))
    assert "mishap.py" in shown, "the remote traceback is part of what Python prints"


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("when", ["construct", "reset"])
def test_an_exception_at_the_start_comes_back_whole(make: Make, how: str, when: str) -> None:
    with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised {KINDS[how]} in {when}") as caught:
        make(crew(how=how, when=when)).reset(seed=0)
    assert "mishap.py" in "".join(traceback.format_exception(caught.value))


def test_a_keyboard_interrupt_of_an_environment_is_its_own(make: Make, setting: Setting) -> None:
    envs = make(crew(how="keyboard_interrupt", when="step"))
    envs.reset(seed=0)
    # In the caller's own process nobody can tell it from the user's Ctrl-C.
    expected = KeyboardInterrupt if setting.backend == "serial" else EnvRaised
    with pytest.raises(expected):
        envs.step(zeros())


def test_an_exception_in_close_is_logged_and_close_goes_on(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    envs = make(crew(how="raise", when="close"))
    envs.reset(seed=0)
    envs.close()
    assert envs.closed
    assert any("raised in close" in record.getMessage() for record in caplog.records)


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
            envs.recv(min_envs=len(envs._pool.outstanding()))
    got: list[int] = []
    while len(envs._pool.outstanding()):
        got += envs.recv(min_envs=1).env_ids.tolist()
    assert CULPRIT not in got


BAD = {
    "wrong_shape": "has shape",
    "broadcastable_shape": "has shape",
    "none_obs": "is None",
    "lossy_cast": "without loss",
}


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("when", ["reset", "step"])
def test_bad_observations_are_caught_with_env_and_key(make: Make, how: str, when: str) -> None:
    with pytest.raises(ContractError, match=f"env {CULPRIT}, in {when}.*{BAD[how]}"):
        envs = make(crew(how=how, when=when))
        envs.reset(seed=0)
        envs.step(zeros())


@pytest.mark.parametrize(("how", "says"), [("missing_key", "missing"), ("extra_key", "too many")])
def test_wrong_keys_are_named(make: Make, how: str, says: str) -> None:
    def factory() -> Any:
        return Saboteur(how, "step", env=CountingWorld(obs="dict"))  # type: ignore[arg-type]

    envs = make(factory, 3)
    envs.reset(seed=0)
    with pytest.raises(ContractError, match=rf"env 0, in step.*wrong keys.*{says} \['"):
        envs.step(np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize("how", ["nan", "inf"])
def test_what_is_not_finite_is_caught_when_asked(make: Make, how: str) -> None:
    def factory() -> Any:
        return Saboteur(how, "step", env=CountingWorld(obs="dict"))  # type: ignore[arg-type]

    relaxed = make(factory, 3)
    relaxed.reset(seed=0)
    relaxed.step(np.zeros(3, dtype=np.int64))
    strict = make(factory, 3, faults=Faults(check_finite=True))
    strict.reset(seed=0)
    with pytest.raises(ContractError, match=r"env 0, in step.*is not finite"):
        strict.step(np.zeros(3, dtype=np.int64))


def test_an_info_that_cannot_travel_is_explained(make: Make, setting: Setting) -> None:
    class Leaky(CountingWorld):
        def step(self, action: Any) -> Any:
            import threading

            return (*super().step(action)[:4], {"lock": threading.Lock()})

    envs = make(Leaky, 3)
    envs.reset(seed=0)
    if setting.backend == "process":
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
