"""F13: an environment that always fails is given up after a while, and never in a recursion."""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import Record, Scale
from faults.recovering import cast, worlds
from shoal import EnvRaised, Faults, WorkerDied, WorkerTimeout
from shoal.engine import supervisor
from shoal.testing import CountingWorld
from trace_of import assert_same

NUM_ENVS, CULPRIT, MAX_RESTARTS = 4, 2, 3
ALWAYS = 2000
"""Failures in a script that never comes to an end."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 0.0001)
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE_S", 0.0002)


def step_until_error(envs: shoal.VectorEnv) -> None:
    while True:
        envs.step(np.zeros(envs.num_envs, dtype=np.int64))


CASES: dict[str, tuple[list[tuple[str, str]], type[Exception], dict[str, Any]]] = {
    "dies in every step": ([("step", "sigkill")], WorkerDied, {}),
    "dies in every reset": ([("step 2", "sigkill"), *[("reset", "abort")] * 50], WorkerDied, {}),
    "dies when rebuilt": (
        [("step 2", "sigkill"), *[("construct", "os_exit")] * 50],
        WorkerDied,
        {},
    ),
    "raises when rebuilt": ([("step 2", "sigkill"), *[("construct", "raise")] * 50], EnvRaised, {}),
    "raises in every step": ([("step", "raise")], EnvRaised, {"on_error": "restart"}),
    "raises in every reset": (
        [("step 2", "raise"), *[("reset", "raise")] * 50],
        EnvRaised,
        {"on_error": "restart"},
    ),
    "raises, then raises when rebuilt": (
        [("step 2", "raise"), *[("construct", "raise")] * 50],
        EnvRaised,
        {"on_error": "restart"},
    ),
    "hangs in every step": ([("step", "hang_sleep")], WorkerTimeout, {}),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("case", CASES)
def test_what_always_fails_is_given_up(case: str, tmp_path: Path, figure: Record) -> None:
    script, kind, faults = CASES[case]
    script = script * ALWAYS if len(script) == 1 else script
    given: dict[str, Any] = {"backend": "process", "num_workers": 2}
    if kind is WorkerTimeout:
        given["step_timeout_s"] = 0.1
    faults = Faults(max_restarts=MAX_RESTARTS, **faults)
    with shoal.make(cast(NUM_ENVS, CULPRIT, tmp_path, script), faults=faults, **given) as envs:
        envs.reset(seed=0)
        with pytest.raises(kind) as caught:
            step_until_error(envs)
        figure("F13", "given up after max_restarts", case)
        notes = "\n".join(caught.value.__notes__)
        assert f"failed {MAX_RESTARTS + 1} times without a finished episode" in notes
        assert f"max_restarts is {MAX_RESTARTS}" in notes
        stats = envs.stats()
        assert stats["num_incidents"] == MAX_RESTARTS + 1
        assert {one["env_id"] for one in stats["incidents"]} <= {CULPRIT, None}
        assert stats["incidents"][-1]["outcome"] == "raised"
        # The environments of the other worker can still be used, and the error does not go away.
        envs.send([0, 0], env_ids=[0, 1])
        assert envs.recv().env_ids.tolist() == [0, 1]
        if kind is EnvRaised and faults.on_error == "restart":
            return
        for _ in range(2):
            with pytest.raises(kind) as later:
                envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
            assert str(later.value) == str(caught.value)
        assert envs.stats()["num_incidents"] == MAX_RESTARTS + 1


@pytest.mark.usefixtures("impatient")
def test_many_restarts_are_no_recursion(tmp_path: Path, scale: Scale, figure: Record) -> None:
    count = scale(short=30, full=1000)
    script = [("step 1", "sigkill"), *[("construct", "sigkill")] * ALWAYS]
    given: dict[str, Any] = {"backend": "process", "num_workers": 1}
    with shoal.make(
        cast(1, 0, tmp_path, script), faults=Faults(max_restarts=count), **given
    ) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDied, match="in construct of env 0") as caught:
            envs.step(np.zeros(1, dtype=np.int64))
    assert f"failed {count + 1} times" in " ".join(caught.value.__notes__)
    figure("F13", "restarts in one step", f"{count}, no recursion")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("backend", ["serial", "thread"])
@pytest.mark.parametrize("phase", ["reset", "construct"])
def test_many_exceptions_are_no_recursion(backend: str, phase: str, tmp_path: Path) -> None:
    count = 200 if backend == "thread" else 1500
    script = [("step 1", "raise"), *[(phase, "raise")] * ALWAYS]
    faults = Faults(max_restarts=count, on_error="restart")
    with shoal.make(cast(1, 0, tmp_path, script), backend=backend, faults=faults) as envs:
        envs.reset(seed=0)
        with pytest.raises(EnvRaised, match=f"scripted, {phase}") as caught:
            for _ in range(2):  # the loss is told by the first, the reset is made by the second
                envs.step(np.zeros(1, dtype=np.int64))
    assert f"failed {count + 1} times" in " ".join(caught.value.__notes__)


def test_pauses_grow_and_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE_S", 0.15)
    factories = cast(2, 0, tmp_path, [("step", "sigkill")] * ALWAYS)
    given: dict[str, Any] = {"backend": "process", "num_workers": 2}
    with shoal.make(factories, faults=Faults(max_restarts=5), **given) as envs:
        envs.reset(seed=0)
        begun = time.monotonic()
        with pytest.raises(WorkerDied):
            step_until_error(envs)
        took_s = time.monotonic() - begun
        waits_s = [one["took_s"] for one in envs.stats()["incidents"]]
    for wait_s, pause_s in zip(waits_s, [0.0, 0.05, 0.1, 0.15, 0.15], strict=False):
        assert wait_s >= pause_s
    assert 0.45 <= took_s <= 10.0


def test_others_go_on_during_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_FIRST_PAUSE_S", 1.0)
    factories = cast(NUM_ENVS, CULPRIT, tmp_path, [("step", "sigkill")] * 2)
    given: dict[str, Any] = {"backend": "process", "num_workers": 2}
    with shoal.make(factories, autoreset="same_step", **given) as envs:
        envs.reset(seed=0)
        envs.send([0], env_ids=[CULPRIT])
        assert envs.recv().infos["restarted"].all()
        envs.send([0], env_ids=[CULPRIT])  # dies again, and now there is a pause
        begun, received = time.monotonic(), []
        while CULPRIT not in received:
            envs.send([0, 0], env_ids=[0, 1])
            received += (batch := envs.recv(2)).env_ids.tolist()
            if not {0, 1} <= set(batch.env_ids.tolist()):
                break
        took_s = time.monotonic() - begun
    assert took_s >= 1.0
    assert received.count(0) >= 10


class Moody(CountingWorld):
    """Dies at its second step in every other episode; in between it finishes one."""

    def __init__(self, tag: int, *, path: str = "", **kwargs: Any) -> None:
        super().__init__(tag, **kwargs)
        self.path = path

    def step(self, action: Any) -> Any:
        if self.path and self._record.step == 1 and not os.path.exists(self.path):
            Path(self.path).touch()
            os._exit(1)
        result = super().step(action)
        if self.path and (result[2] or result[3]) and os.path.exists(self.path):
            os.unlink(self.path)
        return result


@pytest.mark.usefixtures("impatient")
def test_a_finished_episode_clears_the_count(mode: str, tmp_path: Path) -> None:
    factories = worlds(NUM_ENVS)
    factories[CULPRIT] = functools.partial(Moody, CULPRIT, path=str(tmp_path / "mood"))
    given: dict[str, Any] = {"backend": "process", "num_workers": 2, "autoreset": mode}
    with shoal.make(factories, faults=Faults(max_restarts=1), **given) as envs:
        envs.reset(seed=0)
        deaths = 0
        while deaths < 6:
            _, _, terminations, truncations, infos = envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
            deaths += "restarted" in infos
            ended = terminations | truncations
            if mode == "disabled" and ended.any():
                envs.reset(options={"reset_mask": ended})
        assert envs.stats()["num_incidents"] == 6


@pytest.mark.usefixtures("impatient")
def test_a_loss_that_a_reset_made_needless_does_not_spoil_the_count(tmp_path: Path) -> None:
    factories = cast(2, 0, tmp_path, [("call", "sigkill")] * 4)
    given: dict[str, Any] = {"backend": "process", "num_workers": 2}
    with shoal.make(factories, faults=Faults(max_restarts=1), **given) as envs:
        for _ in range(4):
            envs.reset(seed=0)
            with pytest.raises(WorkerDied, match="in call of env 0"):
                envs.call("poke", env_ids=[0])
            envs.reset(seed=0)
            while not any(ended[0] for ended in envs.step(np.zeros(2, dtype=np.int64))[2:4]):
                pass


@pytest.mark.usefixtures("impatient")
def test_two_deaths_at_the_same_step_end_in_a_restart_and_then_in_the_error(
    tmp_path: Path, figure: Record
) -> None:
    script = [("step 3", "sigkill")] * ALWAYS
    given: dict[str, Any] = {"backend": "process", "num_workers": 2, "on_failure": "replay"}
    factories = cast(NUM_ENVS, CULPRIT, tmp_path, script, history=False)
    faults = Faults(max_restarts=5)
    with shoal.make(factories, faults=faults, **given) as envs:
        trace = []
        envs.reset(seed=0)
        with pytest.raises(WorkerDied) as caught:
            while True:
                trace.append(envs.step(np.zeros(NUM_ENVS, dtype=np.int64)))
        stats = envs.stats()
    assert "failed 6 times" in " ".join(caught.value.__notes__)
    outcomes = [one["outcome"] for one in stats["incidents"]]
    assert outcomes == ["replayed", "restarted"] * 2 + ["replayed", "raised"]
    assert {one["env_id"] for one in stats["incidents"]} == {CULPRIT}
    told = [infos["restarted"].tolist() for *_, infos in trace if "restarted" in infos]
    assert told == [[i == CULPRIT for i in range(NUM_ENVS)]] * 2
    with shoal.make(worlds(NUM_ENVS, history=False), backend="serial") as envs:
        envs.reset(seed=0)
        mates = [i for i in range(NUM_ENVS) if i != CULPRIT]
        for got in trace:
            expected = envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
            for one, other in zip(got[:4], expected[:4], strict=True):
                assert_same(one[mates], other[mates])
    figure("F13", "two deaths at the same step", "restarted, then the error; mates undisturbed")


def test_no_restart_at_all_may_be_asked_for(tmp_path: Path) -> None:
    factories = cast(NUM_ENVS, CULPRIT, tmp_path, [("step", "sigkill")])
    given: dict[str, Any] = {"backend": "process", "num_workers": 2}
    with shoal.make(factories, faults=Faults(max_restarts=0), **given) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDied):
            envs.step(np.zeros(NUM_ENVS, dtype=np.int64))


def test_a_death_in_the_constructor_is_not_a_death_at_the_same_step(tmp_path: Path) -> None:
    script = [("step 3", "sigkill"), ("construct", "sigkill")]
    given: dict[str, Any] = {"backend": "process", "num_workers": 2, "on_failure": "replay"}
    with shoal.make(cast(NUM_ENVS, CULPRIT, tmp_path, script, history=False), **given) as envs:
        envs.reset(seed=0)
        for _ in range(4):
            assert "restarted" not in envs.step(np.zeros(NUM_ENVS, dtype=np.int64))[4]
        assert [one["phase"] for one in envs.stats()["incidents"]] == ["step", "construct"]


def test_who_dies_once_does_not_pay_for_its_mates(tmp_path: Path, impatient: None) -> None:
    script = [("step 2", "sigkill")]
    envs = [cast(NUM_ENVS, k, tmp_path, script, history=False)[k] for k in range(NUM_ENVS)]
    faults = Faults(max_restarts=1)
    kwargs = {"backend": "process", "num_workers": 1, "on_failure": "replay", "faults": faults}
    with shoal.make(envs, **kwargs) as made:
        made.reset(seed=0)
        for _ in range(2):
            made.step(np.zeros(NUM_ENVS, dtype=np.int64))
        assert made.stats()["num_incidents"] == NUM_ENVS
        assert made.stats()["restarts"] == 0
