"""Can a pool grow and shrink in the middle of a run? Those that stay keep their episodes."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import Make, Setting
from faults.conftest import Record
from shoal import ConfigError, ContractError, EnvRaised
from shoal.engine.commands import Build
from shoal.testing import CountingWorld, decode
from trace_of import assert_same

FIRST, MOST, LAST = 4, 16, 2
CHANGES: dict[int, dict[str, int]] = {
    20: {"num_envs": MOST},
    40: {"num_workers": 3},
    100: {"num_workers": 2},
    160: {"num_envs": LAST},
}
STEPS = 200


def world() -> CountingWorld:
    return CountingWorld(history=False, infos="numeric")


def actions(step: int, count: int) -> Any:
    return (np.arange(count) * 7 + step * 3) % 5


def advance(envs: Any, step: int, mode: str) -> Any:
    """One step, and in mode disabled the reset of what has ended."""
    results = envs.step(actions(step, envs.num_envs))
    ended = results[2] | results[3]
    again = None
    if mode == "disabled" and ended.any():
        again = envs.reset(options={"reset_mask": ended})[0]
    return results, ended, again


def calm_run(num_envs: int, first_step: int, mode: str) -> list[Any]:
    with shoal.make(world, num_envs, backend="serial", autoreset=mode) as envs:
        trace: list[Any] = [envs.reset(seed=3)]
        return trace + [advance(envs, step, mode) for step in range(first_step, STEPS)]


def rows(results: Any, which: slice) -> Any:
    """These environments' part of a step, infos included, as far as they have any."""
    infos = {
        key: (value[which], results[4][f"_{key}"][which])
        for key, value in results[4].items()
        if f"_{key}" in results[4] and results[4][f"_{key}"][which].any() and key != "final_info"
    }
    return [part[which] for part in results[:4]], infos


def test_those_that_stay_keep_their_episodes(make: Make, mode: str, figure: Record) -> None:
    old = calm_run(FIRST, 0, mode)
    grown_at = min(CHANGES)
    young = calm_run(MOST, grown_at, mode)
    envs = make(world, FIRST, num_workers=1, autoreset=mode)
    envs.reset(seed=3)
    moves = 0
    for step in range(STEPS):
        if step in CHANGES:
            fresh = envs.resize(**CHANGES[step])
            count = CHANGES[step].get("num_envs", envs.num_envs)
            assert envs.num_envs == count == envs.action_space.shape[0]
            if step == grown_at:
                assert_same(fresh[0], young[0][0][FIRST:])
            else:
                assert len(fresh[0]) == 0
        before = [seat.index for seat in envs._pool.owner]
        results, ended, _ = advance(envs, step, mode)
        stay = min(FIRST, envs.num_envs)
        assert_same(rows(results, slice(stay)), rows(old[1 + step][0], slice(stay)), f"at {step}")
        if envs.num_envs == MOST:
            expected = rows(young[1 + step - grown_at][0], slice(FIRST, MOST))
            assert_same(rows(results, slice(FIRST, MOST)), expected, f"young at {step}")
        after = [seat.index for seat in envs._pool.owner]
        changed = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        assert all(ended[changed]), "an environment moved in the middle of an episode"
        moves += len(changed)
    if envs.stats()["backend"] == "process":
        assert moves > 0
        figure("F17", f"4 to 16 to 2 envs, 1 to 3 to 2 workers, {mode}", "bit-identical")
    assert envs.stats()["num_workers"] == len(envs._pool.workers) <= 2


def test_blocks_are_even_again_after_a_while(make: Make, setting: Setting) -> None:
    envs = make(world, 6, num_workers=1)
    envs.reset(seed=0)
    envs.resize(num_workers=3)
    for step in range(60):
        envs.step(actions(step, 6))
    owners = [seat.index for seat in envs._pool.owner]
    assert owners == ([0] * 6 if setting.backend == "serial" else [0, 0, 1, 1, 2, 2])


def test_attributes_plans_and_generators_go_along(make: Make, mode: str) -> None:
    envs = make(world, 4, num_workers=1, autoreset=mode)
    calm = shoal.make(world, 4, backend="serial", autoreset=mode)
    for one in (envs, calm):
        one.reset(seed=5)
        one.set_attr("bonus", [1.0, 2.0, 3.0, 4.0])
        one.set_next_reset([1, 3], seeds=[11, 33], options=[{"task": 1}, {"task": 3}])
    envs.resize(num_workers=2)
    for step in range(80):
        (got, *_), (expected, *_) = advance(envs, step, mode), advance(calm, step, mode)
        assert_same(got[:4], expected[:4], f"step {step}")
    assert envs.get_attr("bonus") == (1.0, 2.0, 3.0, 4.0)


@pytest.mark.parametrize("on_failure", ["restart", "replay"])
def test_a_worker_that_dies_while_others_move(on_failure: str) -> None:
    where = {"backend": "process", "num_workers": 1, "autoreset": "same_step"}
    with shoal.make(world, 6, on_failure=on_failure, **where) as envs:
        calm = calm_run(6, 0, "same_step")
        envs.reset(seed=3)
        for step in range(60):
            if step == 10:
                envs.resize(num_workers=3)
            if step >= 10 and step % 7 == 0:
                victims = envs._pool.workers
                os.kill(victims[step % len(victims)].pid, signal.SIGKILL)
            results = envs.step(actions(step, 6))
            if on_failure == "replay":
                assert_same(list(results[:4]), list(calm[1 + step][0][:4]), f"step {step}")
            for env_id, row in enumerate(results[0]):
                assert decode(row).step >= 0, env_id


def test_what_cannot_be_built_leaves_what_there_was(make: Make, tmp_path: Path) -> None:
    def at_most_four() -> CountingWorld:
        if len(os.listdir(tmp_path)) == 4:
            raise OSError("no fifth simulator")
        (tmp_path / f"simulator {len(os.listdir(tmp_path))}").touch()
        return world()

    envs = make(at_most_four, 3, num_workers=1)
    envs.reset(seed=0)
    before = envs.step(actions(0, 3))[0]
    with pytest.raises(EnvRaised, match="no fifth simulator"):
        envs.resize(num_envs=5)
    assert envs.num_envs == 3
    after = envs.step(actions(1, 3))[0]
    assert [decode(row).step for row in after] == [decode(row).step + 1 for row in before]


def test_what_cannot_be_resized_says_so(make: Make) -> None:
    envs = make([functools.partial(CountingWorld, tag) for tag in range(3)])
    envs.reset(seed=0)
    with pytest.raises(ConfigError, match="the list holds 3 factories"):
        envs.resize(num_envs=4)
    with pytest.raises(ConfigError, match="num_envs must be at least 1"):
        envs.resize(num_envs=0)
    envs.send(np.zeros(3, dtype=np.int64))
    with pytest.raises(ContractError, match="were sent and not received"):
        envs.resize(num_envs=2)
    envs.recv()
    assert len(envs.resize(num_envs=2)[0]) == 0
    assert envs.step(np.zeros(2, dtype=np.int64))[0].shape[0] == 2


def test_workers_that_started_long_ago_have_time_to_attach_again() -> None:
    many = 3000  # so that it takes a while
    with shoal.make(CountingWorld, many, backend="process", num_workers=1) as envs:
        envs.reset(seed=0)
        envs._pool.workers[0]._deadline = time.monotonic() - 1.0
        envs.resize(many - 1)
        stats = envs.stats()
        assert (stats["restarts"], stats["timeouts"]) == (0, 0)


def test_one_that_never_closes_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clinging(CountingWorld):
        def close(self) -> None:
            if self.tag == 2:
                threading.Event().wait()

    monkeypatch.setattr("shoal.engine.backends.process.outside.CLOSE_TIMEOUT_S", 0.3)
    worlds = [functools.partial(Clinging, tag, history=False) for tag in range(3)]
    with shoal.make(worlds, backend="process", num_workers=1, on_failure="replay") as envs:
        envs.reset(seed=0)
        before = envs.step(actions(0, 3))[0]
        envs.resize(2)
        observations, *_, infos = envs.step(actions(1, 2))
        assert [decode(row).seed for row in observations] == [
            decode(row).seed for row in before[:2]
        ]
        assert [decode(row).step for row in observations] == [2, 2]
        assert "restarted" not in infos
        (incident,) = envs.stats()["incidents"]
        assert (incident["kind"], incident["phase"], incident["env_id"]) == ("hung", "close", None)


def test_more_workers_than_find_room_are_refused_before_anyone_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.engine.backends.process._ROOM_FOR_WORKERS", 2)
    with shoal.make(world, 4, backend="process", num_workers=1) as envs:
        envs.reset(seed=0)
        before = envs.step(actions(0, 4))[0]
        with pytest.raises(ConfigError, match="3 workers are more than this pool has room for"):
            envs.resize(num_envs=3, num_workers=3)
        assert envs.num_envs == 4
        after = envs.step(actions(1, 4))[0]
        assert [decode(row).step for row in after] == [decode(row).step + 1 for row in before]


def test_a_worker_whose_number_finds_no_room_is_refused() -> None:
    with shoal.make(world, 1, backend="process") as envs:
        build = Build(envs._pool.plan.assign(256, ()))
        with pytest.raises(ConfigError, match="257 workers are more than this pool has room for"):
            envs._pool.backend.launch([build], lambda worker: None)


class Interrupted(CountingWorld):
    """Episodes of two steps for the first one; Ctrl-C in the third step of the second one."""

    def __init__(self, tag: int) -> None:
        super().__init__(tag, history=False)
        self.min_steps = self.max_steps = 2 if tag == 0 else 9
        self.is_calm = False

    def step(self, action: Any) -> Any:
        results = super().step(action)
        if self.tag == 1 and self._record.step == 3 and not self.is_calm:
            self.is_calm = True
            raise KeyboardInterrupt
        return results


def test_a_reset_that_ctrl_c_has_hidden_is_not_trusted_after_resizing() -> None:
    factories = [functools.partial(Interrupted, tag) for tag in range(3)]
    with shoal.make(factories, backend="serial") as envs:
        envs.reset(seed=0)
        for step in range(2):
            terminations, truncations = envs.step(actions(step, 3))[2:4]
        assert (terminations | truncations).tolist() == [True, False, False]
        with pytest.raises(KeyboardInterrupt):
            envs.step(actions(2, 3))  # which has reset the first one
        envs.resize(num_envs=2)
        envs.step(actions(3, 2))
        assert envs.call("record")[0].step == 1
        assert envs.mementos()[0].episode is None  # and not one without any step
