"""First come, first served: send and recv on every backend."""

from __future__ import annotations

import functools
import math
import random
from typing import Any

import numpy as np
import pytest

import shoal
from conftest import Make
from shoal import ContractError
from shoal.testing import CountingWorld
from trace_of import assert_same

NUM_ENVS = 7


def worlds(**kwargs: Any) -> list[Any]:
    return [functools.partial(CountingWorld, tag, **kwargs) for tag in range(NUM_ENVS)]


def action_of(env_id: int, count: int) -> int:
    """The action that env gets in its count-th step, whatever the others do."""
    return (env_id * 31 + count * 7) % 5


def rows_of(row: int, results: Any) -> tuple[Any, ...]:
    """What one environment sees of a batch."""
    return (*(array[row] for array in results[:4]), info_of(row, results[4]))


def info_of(row: int, infos: dict[str, Any]) -> dict[str, Any]:
    """The info of one environment, from Gymnasium's batched form."""
    return {
        key: info_of(row, value) if isinstance(value, dict) else value[row]
        for key, value in infos.items()
        if not key.startswith("_") and infos[f"_{key}"][row]
    }


@functools.cache
def lock_step_histories(mode: str, steps: int) -> list[list[Any]]:
    """Each environment's own history, stepped in lock-step."""
    with shoal.make(worlds(infos="numeric"), backend="serial", autoreset=mode) as envs:
        envs.reset(seed=3)
        histories: list[list[Any]] = [[] for _ in range(NUM_ENVS)]
        for count in range(steps):
            results = envs.step(np.array([action_of(i, count) for i in range(NUM_ENVS)]))
            for i in range(NUM_ENVS):
                histories[i].append(rows_of(i, results))
    return histories


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("batch_size", [1, 3, 7])
def test_each_environment_has_its_own_history_whatever_the_batches(
    make: Make, autoreset: str, batch_size: int
) -> None:
    envs = make(worlds(infos="numeric"), autoreset=autoreset, batch_size=batch_size)
    envs.reset(seed=3)
    histories: list[list[Any]] = [[] for _ in range(NUM_ENVS)]
    chance, idle = random.Random(5), list(range(NUM_ENVS))
    while min(map(len, histories)) < 60:
        chance.shuffle(idle)
        chosen, idle = idle[:4], idle[4:]
        if chosen:
            envs.send(np.array([action_of(i, len(histories[i])) for i in chosen]), chosen)
        outstanding = NUM_ENVS - len(idle)
        batch = envs.recv(min_envs=min(batch_size, outstanding))
        assert min(batch_size, outstanding) <= len(batch.env_ids) <= outstanding
        assert (np.diff(batch.env_ids) > 0).all()
        for row, env_id in enumerate(batch.env_ids.tolist()):
            histories[env_id].append(rows_of(row, batch))
            idle.append(env_id)
    # A worker that gets no processor falls far behind the others, so this is as long as it takes.
    longest = 600 * math.ceil(max(map(len, histories)) / 600)
    for got, expected in zip(histories, lock_step_histories(autoreset, longest), strict=True):
        assert_same(got, expected[: len(got)])


def test_no_ready_environment_waits_for_ever(make: Make) -> None:
    envs = make(worlds(), autoreset="same_step", batch_size=2)
    envs.reset(seed=0)
    envs.send(np.zeros(NUM_ENVS, dtype=np.int64))
    counts = np.zeros(NUM_ENVS, dtype=int)
    for _ in range(300):
        batch = envs.recv()
        counts[batch.env_ids] += 1
        envs.send(np.zeros(len(batch.env_ids), dtype=np.int64), batch.env_ids)
    assert counts.min() > 0


def test_stepping_some_leaves_the_others_where_they_are(make: Make) -> None:
    envs = make(worlds(), autoreset="same_step")
    before, _ = envs.reset(seed=0)
    envs.send(np.array([1, 1]), env_ids=[4, 1])
    batch = envs.recv()
    assert batch.env_ids.tolist() == [1, 4]
    assert len(batch.infos.get("final_obs", [0, 0])) == 2
    records = envs.call("record")
    assert [record.step for record in records] == [0, 1, 0, 0, 1, 0, 0]
    assert before[0][4] == 0


def test_what_was_sent_to_a_busy_worker_follows(make: Make) -> None:
    envs = make(worlds(), autoreset="same_step", num_workers=1)
    envs.reset(seed=0)
    for env_id in (0, 3, 5):
        envs.send(np.array([1]), env_ids=[env_id])
    got = []
    while len(got) < 3:
        got += envs.recv(min_envs=1).env_ids.tolist()
    assert sorted(got) == [0, 3, 5]


def test_misuse_is_an_error_that_changes_nothing(make: Make) -> None:
    envs = make(worlds(), autoreset="same_step")
    envs.reset(seed=0)
    with pytest.raises(ContractError, match="nothing was sent"):
        envs.recv()
    envs.send(np.array([1, 2]), env_ids=[2, 3])
    with pytest.raises(ContractError, match="environments 2 were sent"):
        envs.send(np.array([0, 0]), env_ids=[2, 6])
    with pytest.raises(ContractError, match="step: environments 2, 3 were sent"):
        envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
    with pytest.raises(ContractError, match="were sent"):
        envs.reset()
    with pytest.raises(ContractError, match="3 environments, but 2 are outstanding"):
        envs.recv(min_envs=3)
    with pytest.raises(ContractError, match="expected different numbers from 0 to 6"):
        envs.send(np.array([1]), env_ids=[7])
    with pytest.raises(ContractError, match="holds 1 actions; expected 2"):
        envs.send(np.array([1]), env_ids=[0, 1])
    assert envs.recv().env_ids.tolist() == [2, 3]
    assert [record.step for record in envs.call("record")] == [0, 0, 1, 1, 0, 0, 0]


def test_calls_and_resets_of_idle_environments_work_while_others_are_outstanding(
    make: Make,
) -> None:
    envs = make(worlds(), autoreset="same_step")
    envs.reset(seed=0)
    envs.send(np.array([1]), env_ids=[0])
    assert envs.call("echo", "x", env_ids=[1]) == ((1, ("x",), {}),)
    observations, _ = envs.reset_envs([2], seeds=[99])
    assert observations[0][0] == 99
    assert envs.recv().env_ids.tolist() == [0]


def test_a_timeout_loses_nothing(make: Make, setting: Any) -> None:
    if setting.backend == "serial":
        pytest.skip("a serial send has done its work when it returns")
    # In hybrid the caller steps env 0 itself, as it is sent.
    slow = [functools.partial(CountingWorld, i, work_s=0.1 + 0.6 * i) for i in range(2)]
    envs = make(slow, num_workers=2)
    envs.reset(seed=0)
    envs.send(np.array([1, 1]))
    with pytest.raises(TimeoutError, match="Nothing is lost"):
        envs.recv(min_envs=2, timeout_s=0.01)
    assert envs.recv(min_envs=2).env_ids.tolist() == [0, 1]


def test_lock_step_and_first_ready_can_be_mixed(make: Make) -> None:
    envs = make(worlds(), autoreset="same_step", copy=False)
    envs.reset(seed=0)
    ones = np.ones(NUM_ENVS, dtype=np.int64)
    envs.step(ones)
    envs.send(ones[:3], env_ids=[0, 1, 2])
    envs.recv()
    envs.step(ones)
    assert [record.step for record in envs.call("record")] == [3, 3, 3, 2, 2, 2, 2]


def test_views_of_a_step_survive_the_next_step_of_each_environment(make: Make) -> None:
    envs = make(worlds(), autoreset="same_step", copy=False)
    envs.reset(seed=0)
    ones = np.ones(NUM_ENVS, dtype=np.int64)
    observations = envs.step(ones)[0]
    kept = observations.copy()
    envs.send(ones)
    envs.recv()
    assert_same(observations, kept)
    envs.send(ones[:2], env_ids=[0, 1])
    envs.recv()
    assert_same(observations[2:], kept[2:])
    after = envs.reset(options={"reset_mask": np.arange(NUM_ENVS) == 0})[0]
    assert after[1:, 4].tolist() == [record.step for record in envs.call("record")][1:]
    assert_same(observations[2:], kept[2:])


@pytest.mark.parametrize("kind", ["SyncVectorEnv", "AsyncVectorEnv"])
def test_drop_ins_can_be_sent_to_as_well(kind: str) -> None:
    import shoal.vector.gym

    class Hearing(CountingWorld):
        def step(self, action: Any) -> Any:
            self.heard = [*getattr(self, "heard", []), int(action)]
            return super().step(action)

    envs = getattr(shoal.vector.gym, kind)([Hearing] * 3)
    envs.reset(seed=0)
    envs.step(np.array([1, 1, 1]))
    envs.send(np.array([4]), [2])
    envs.recv()
    envs.send([3, 2, 1])
    envs.recv()
    assert envs.get_attr("heard") == ([1, 3], [1, 2], [1, 4, 1])
    envs.close()
