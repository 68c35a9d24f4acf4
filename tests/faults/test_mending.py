"""An environment's own exception with `on_error="restart"`: it is rebuilt, its mates go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import Make
from faults.recovering import cast, worlds
from shoal import EnvRaised, Faults
from shoal.seeding import env_seed
from shoal.testing.worlds import decode
from trace_of import assert_same

NUM_ENVS, CULPRIT = 6, 4
MATES = [i for i in range(NUM_ENVS) if i != CULPRIT]


def lenient(**kwargs: Any) -> dict[str, Any]:
    return {"faults": Faults(on_error="restart", **kwargs)}


def steps(envs: shoal.VectorEnv, mode: str, count: int) -> list[Any]:
    trace = []
    for turn in range(count):
        trace.append(envs.step(np.full(NUM_ENVS, turn % 7)))
        ended = trace[-1][2] | trace[-1][3]
        if mode == "disabled" and ended.any():
            envs.reset(options={"reset_mask": ended})
    return trace


def expected_of_mates(mode: str, count: int) -> list[Any]:
    with shoal.make(worlds(NUM_ENVS), backend="serial", autoreset=mode) as envs:
        envs.reset(seed=1)
        return steps(envs, mode, count)


def assert_mates_same(got: list[Any], expected: list[Any]) -> None:
    for one, other in zip(got, expected, strict=True):
        for part, known in zip(one[:4], other[:4], strict=True):
            assert_same(part[MATES], known[MATES])


def test_an_environment_that_raises_is_restarted_and_nobody_else(
    make: Make, mode: str, tmp_path: Path
) -> None:
    envs = make(
        cast(NUM_ENVS, CULPRIT, tmp_path, [("step 3", "raise")]), **lenient(), autoreset=mode
    )
    envs.reset(seed=1)
    trace = steps(envs, mode, 8)
    observations, rewards, terminations, truncations, infos = trace[2]
    assert np.flatnonzero(infos["restarted"]).tolist() == [CULPRIT]
    assert (rewards[CULPRIT], terminations[CULPRIT], truncations[CULPRIT]) == (0.0, False, True)
    last = infos["final_obs"][CULPRIT] if mode == "same_step" else observations[CULPRIT]
    assert_same(last, trace[1][0][CULPRIT])
    later = trace[2 if mode == "same_step" else 3][0][CULPRIT]
    assert decode(later).seed == env_seed(1, CULPRIT, 1)
    assert_mates_same(trace, expected_of_mates(mode, 8))
    stats = envs.stats()
    (incident,) = stats["incidents"]
    assert (incident["kind"], incident["env_ids"]) == ("raised", (CULPRIT,))
    assert (incident["phase"], incident["outcome"]) == ("step", "restarted")
    assert stats["restarts"] == 1


def test_one_that_raises_again_when_rebuilt_is_tried_again(make: Make, tmp_path: Path) -> None:
    script = [("step 3", "raise"), ("construct", "raise"), ("construct", "raise_unpicklable")]
    envs = make(cast(NUM_ENVS, CULPRIT, tmp_path, script), **lenient())
    envs.reset(seed=1)
    trace = steps(envs, "next_step", 6)
    assert np.flatnonzero(trace[2][4]["restarted"]).tolist() == [CULPRIT]
    assert_mates_same(trace, expected_of_mates("next_step", 6))
    stats = envs.stats()
    assert [one["kind"] for one in stats["incidents"]] == ["raised"] * 3
    assert [one["env_ids"] for one in stats["incidents"]] == [(CULPRIT,)] * 3


def test_an_exception_in_a_later_reset_is_tried_again(make: Make, tmp_path: Path) -> None:
    script = [("step 1", "raise"), ("reset", "raise"), ("reset", "raise")]
    envs = make(cast(NUM_ENVS, CULPRIT, tmp_path, script), **lenient())
    envs.reset(seed=1)
    steps(envs, "next_step", 1)
    observations, _ = envs.reset(seed=60)
    assert [decode(row).seed for row in observations] == list(range(60, 60 + NUM_ENVS))
    assert envs.stats()["num_incidents"] == 3


def test_an_exception_in_the_first_reset_raises(make: Make, tmp_path: Path) -> None:
    envs = make(cast(NUM_ENVS, CULPRIT, tmp_path, [("reset", "raise")]), **lenient())
    with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised ValueError in reset"):
        envs.reset(seed=1)


def test_an_exception_in_a_call_raises(make: Make, tmp_path: Path) -> None:
    envs = make([*cast(1, 0, tmp_path, [("call", "raise")])], **lenient())
    envs.reset(seed=1)
    with pytest.raises(EnvRaised, match="in call"):
        envs.call("poke")
    assert envs.call("poke") == ("poked 0",)


def test_sent_environments_that_raise_are_restarted(make: Make, tmp_path: Path) -> None:
    envs = make(cast(NUM_ENVS, CULPRIT, tmp_path, [("step 2", "raise")]), **lenient())
    envs.reset(seed=1)
    for turn in range(3):
        envs.send([turn, turn], env_ids=[CULPRIT, CULPRIT + 1])
        batch = envs.recv(2)
        assert ("restarted" in batch.infos) == (turn == 1)
        if turn == 1:
            assert batch.infos["restarted"].tolist() == [True, False]
    assert envs.call("record", env_ids=[CULPRIT + 1])[0].step == 3


@pytest.mark.parametrize("on_failure", ["restart", "replay"])
@pytest.mark.parametrize("way", ["step", "send"])
def test_a_death_while_one_that_raised_is_mended_keeps_its_mates_in_step(
    on_failure: str, way: str, tmp_path: Path
) -> None:
    # It raises, and the reset that is part of telling so kills the worker.
    script = [("step 2", "raise"), ("reset", "sigkill")]
    factories = cast(4, 0, tmp_path, script, history=False)
    given: dict[str, Any] = {"num_workers": 1, "on_failure": on_failure, "autoreset": "same_step"}
    with shoal.make(factories, backend="process", **given, **lenient()) as envs:
        envs.reset(seed=1)
        sent = [0, 1, 2] if way == "send" else [0, 1, 2, 3]
        for turn in range(4):
            if way == "send":
                envs.send([turn] * 3, env_ids=sent)
                observations, *_, infos, _ = envs.recv(3)
            else:
                observations, *_, infos = envs.step(np.full(4, turn))
            told = infos.get("restarted", np.zeros(len(sent), bool))
            if turn == 1:
                assert told.tolist() == [on_failure == "restart" or i == 0 for i in sent]
            else:
                assert not told.any()
            # What was handed out is where each of them is.
            records = envs.call("record", env_ids=sent)
            assert [decode(row) for row in observations] == list(records)
        if way == "send":
            envs.send([0], env_ids=[3])
            told_later = envs.recv(1).infos.get("restarted", np.zeros(1, bool))
            assert told_later.tolist() == [on_failure == "restart"]


def test_one_whose_budget_is_spent_leaves_its_mates_where_they_are(
    make: Make, tmp_path: Path
) -> None:
    factories = cast(NUM_ENVS, CULPRIT, tmp_path, [("step 2", "raise")], history=False)
    envs = make(factories, **lenient(max_restarts=0))
    envs.reset(seed=1)
    envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
    with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised"):
        envs.step(np.ones(NUM_ENVS, dtype=np.int64))
    observations = envs.step(np.full(NUM_ENVS, 2))[0]
    records = envs.call("record")
    assert [decode(row) for row in observations] == list(records)
    assert [records[i].step for i in MATES] == [3] * len(MATES)
    journal = envs._pool.books.journal
    assert [journal.length(i) for i in MATES] == [3] * len(MATES)


def test_one_that_could_not_be_rebuilt_is_never_stepped_again(make: Make, tmp_path: Path) -> None:
    script = [("step 2", "raise"), ("construct", "raise"), ("construct", "raise")]
    envs = make(cast(NUM_ENVS, CULPRIT, tmp_path, script), **lenient(max_restarts=2))
    envs.reset(seed=1)
    steps(envs, "next_step", 1)
    with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised ValueError in construct"):
        steps(envs, "next_step", 1)
    for _ in range(2):
        with pytest.raises(EnvRaised, match=f"env {CULPRIT} raised .*not built again"):
            steps(envs, "next_step", 1)


def test_options_for_the_next_reset_leave_a_restart_its_seed(make: Make, tmp_path: Path) -> None:
    envs = make(cast(NUM_ENVS, CULPRIT, tmp_path, [("step 3", "raise")]), **lenient())
    envs.reset(seed=1)
    steps(envs, "next_step", 3)
    envs.set_next_reset([CULPRIT], options={"task": 5})
    record = decode(steps(envs, "next_step", 1)[0][0][CULPRIT])
    assert (record.seed, record.task) == (env_seed(1, CULPRIT, 1), 5)
    assert envs._pool.books.journal.entries[CULPRIT].args.seed == record.seed
