"""F19: what was set on an environment, or planned for it, is there again when it is rebuilt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import Record
from faults.recovering import cast, kill_worker, worlds
from shoal.seeding import env_seed
from shoal.testing import CountingWorld
from shoal.testing.worlds import decode
from trace_of import assert_same

NUM_ENVS = 4
POLICIES = ["restart", "replay"]


def make(on_failure: str, mode: str = "next_step", **kwargs: Any) -> shoal.VectorEnv:
    given = {"backend": "process", "num_workers": 2, "autoreset": mode, "on_failure": on_failure}
    return shoal.make(worlds(NUM_ENVS, history=False), **given | kwargs)


def step(envs: shoal.VectorEnv, action: int = 0) -> Any:
    return envs.step(np.full(NUM_ENVS, action))


@pytest.mark.parametrize("on_failure", POLICIES)
def test_attributes_are_applied_again(on_failure: str, figure: Record) -> None:
    with make(on_failure) as envs:
        envs.set_attr("bonus", 100.0)  # before the first reset
        envs.reset(seed=0)
        envs.set_attr("bonus", [1.0, 2.0, 3.0, 4.0])
        kill_worker(envs, 0)
        assert envs.get_attr("bonus") == (1.0, 2.0, 3.0, 4.0)
        step(envs)
        envs.set_attr("bonus", [30.0], env_ids=[2])  # in the middle of an episode
        envs.set_attr("note", ["a", "b"], env_ids=[2, 3])
        kill_worker(envs, 1)
        assert envs.get_attr("bonus") == (1.0, 2.0, 30.0, 4.0)
        assert envs.get_attr("note", env_ids=[2, 3]) == ("a", "b")
        kill_worker(envs, 1)  # and once more
        assert envs.get_attr("bonus") == (1.0, 2.0, 30.0, 4.0)
        told = step(envs)[4].get("restarted", np.zeros(NUM_ENVS, bool))
        assert told[2:].tolist() == [on_failure == "restart"] * 2
    figure("F19", "attributes applied again", on_failure)


def test_an_attribute_set_in_mid_episode_is_replayed_at_its_step() -> None:
    traces = []
    for disturbed in (False, True):
        with make("replay") as envs:
            trace: list[Any] = [envs.reset(seed=3)]
            for turn in range(24):
                if turn % 3 == 1:  # several in one episode, one at its very end or beginning
                    envs.set_attr("bonus", [float(turn + i) for i in range(NUM_ENVS)])
                if turn % 5 == 2:
                    envs.set_attr("bonus", [0.5], env_ids=[turn % NUM_ENVS])
                if disturbed and turn % 4 == 0:
                    kill_worker(envs, turn // 4 % 2)
                trace.append(step(envs, turn % 7))
            stats = envs.stats()
        traces.append(trace)
    assert_same(traces[1], traces[0])
    assert {one["outcome"] for one in stats["incidents"]} == {"replayed"}


@pytest.mark.parametrize("on_failure", POLICIES)
def test_a_death_while_attributes_are_set_sets_them(on_failure: str) -> None:
    with make(on_failure) as envs:
        envs.reset(seed=0)
        kill_worker(envs, 1)
        envs.set_attr("bonus", [1.0, 2.0, 3.0, 4.0])
        assert envs.stats()["num_incidents"] == 1
        assert envs.get_attr("bonus") == (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize("on_failure", POLICIES)
def test_a_pending_reset_outlives_a_restart(on_failure: str, mode: str, figure: Record) -> None:
    if mode == "disabled":
        pytest.skip("nothing resets by itself")
    with make(on_failure, mode) as envs:
        envs.reset(seed=0)
        step(envs)
        envs.set_next_reset([2, 3], seeds=[70, None], options=[{"task": 7}, {"task": 8}])
        kill_worker(envs, 1)
        begun: dict[int, Any] = {}
        seen = [1] * NUM_ENVS
        for turn in range(45):
            observations = step(envs, turn % 7)[0]
            for i in range(NUM_ENVS):
                record = decode(observations[i])
                if record.step == 0 and seen[i] > 0 and i not in begun:
                    begun[i] = record
                seen[i] = record.step
        assert [begun[i].task for i in range(NUM_ENVS)] == [0, 0, 7, 8]
        assert begun[2].seed == _first_number(70)
        if on_failure == "restart":
            assert begun[3].seed == _first_number(env_seed(0, 3, 1))
        # It was for once: all later episodes are as they like.
        assert {decode(row).task for row in step(envs)[0]} == {0}
    figure("F19", "pending reset kept", f"{on_failure}, {mode}")


def _first_number(seed: int) -> int:
    """How a counting world without a history shows a seed."""
    world = CountingWorld(0, history=False)
    return decode(world.reset(seed=seed)[0]).seed


@pytest.mark.parametrize("on_failure", POLICIES)
def test_an_explicit_reset_after_the_restart_clears_it(on_failure: str) -> None:
    with make(on_failure, "same_step") as envs:
        envs.reset(seed=0)
        envs.set_next_reset([2], options={"task": 7})
        kill_worker(envs, 1)
        envs.reset(seed=1)
        kill_worker(envs, 1)
        for turn in range(45):
            assert {decode(row).task for row in step(envs, turn % 7)[0]} == {0}


@pytest.mark.parametrize("on_failure", POLICIES)
def test_a_death_while_a_reset_is_planned_plans_it(on_failure: str) -> None:
    with make(on_failure, "same_step") as envs:
        envs.reset(seed=0)
        kill_worker(envs, 1)
        envs.set_next_reset([3], options={"task": 5})
        assert envs.stats()["num_incidents"] == 1
        tasks = {decode(step(envs, turn % 7)[0][3]).task for turn in range(30)}
        assert 5 in tasks


@pytest.mark.parametrize("sent", [False, True])
def test_options_for_the_next_reset_leave_a_restart_its_seed(sent: bool) -> None:
    with make("restart") as envs:
        envs.reset(seed=3)
        step(envs)
        if sent:  # what the death is noticed by
            envs.send([0], env_ids=[0])
        kill_worker(envs, 0)
        envs.set_next_reset([1], options={"task": 5})
        if sent:
            envs.recv()
        while not step(envs)[3][1]:
            pass
        step(envs)
        assert envs.np_random_seed[1] == env_seed(3, 1, 1)
        assert envs.call("record")[1].task == 5
        args = envs._pool.books.journal.entries[1].args
        assert (args.seed, args.options) == (env_seed(3, 1, 1), {"task": 5})


@pytest.mark.parametrize("what", ["set_attr", "plan"])
def test_what_is_set_is_kept_though_ctrl_c_comes_while_it_is_written_down(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with make("restart") as envs:
        envs.reset(seed=3)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(envs._pool.books.journal, what, interrupt)
            if what == "set_attr":
                envs.set_attr("bonus", 7.0)
            else:
                envs.set_next_reset(range(NUM_ENVS), options={"task": 5})
        step(envs)
        for worker in range(2):
            kill_worker(envs, worker)
        assert step(envs)[3].all()
        step(envs)
        if what == "set_attr":
            assert envs.get_attr("bonus") == (7.0,) * NUM_ENVS
        else:
            assert [record.task for record in envs.call("record")] == [5] * NUM_ENVS


def test_a_reset_that_is_taken_again_has_the_seed_of_the_latest_restart(tmp_path: Path) -> None:
    script = [("step", "sigkill"), ("reset", "sigkill")]
    with shoal.make(cast(1, 0, tmp_path, script), backend="process", autoreset="disabled") as envs:
        envs.reset(seed=5)
        envs.step(np.zeros(1, dtype=np.int64))
        observations, _ = envs.reset_envs([0])
    assert decode(observations[0]).seed == env_seed(5, 0, 2)


class Geared(CountingWorld):
    """Setting its gear sets its speed as well."""

    speed = 0

    @property
    def gear(self) -> int:
        return self.speed

    @gear.setter
    def gear(self, gear: int) -> None:
        self.speed = gear


@pytest.mark.parametrize("on_failure", POLICIES)
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_attributes_are_applied_again_in_the_order_in_which_they_were_set(
    on_failure: str, after: int
) -> None:
    """`after` so many of them the first episode begins."""
    factories = worlds(2, Geared, history=False)
    kwargs = {"backend": "process", "num_workers": 1, "on_failure": on_failure}
    with shoal.make(factories, **kwargs) as envs:
        for k, (name, value) in enumerate([("speed", 3), ("gear", 1), ("speed", 5)]):
            if k == after:
                envs.reset(seed=0)
            envs.set_attr(name, value)
        if after < 3:
            kill_worker(envs, 0)
            assert envs.get_attr("speed") == (5, 5)
        envs.reset(seed=0)
        kill_worker(envs, 0)
        assert envs.get_attr("speed") == (5, 5)
