"""Does one slow environment keep the others waiting? Not those of other workers, and its own mates
only until its episode has ended."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import Record, Scale
from shoal.testing import CountingWorld, decode

NUM_ENVS, SLOW = 8, 0
QUICK_S, SLOW_S = 0.001, 0.05


class Sleepy(CountingWorld):
    """Takes its time, without needing a core for it."""

    def __init__(self, tag: int, sleep_s: float) -> None:
        super().__init__(tag, history=False)
        self.sleep_s = sleep_s

    def step(self, action: Any) -> Any:
        time.sleep(self.sleep_s)
        return super().step(action)


def crew(slow_s: float) -> list[Any]:
    times = [slow_s if tag == SLOW else QUICK_S for tag in range(NUM_ENVS)]
    return [functools.partial(Sleepy, tag, sleep_s) for tag, sleep_s in enumerate(times)]


def steps_of(slow_s: float, lasting_s: float, mode: str) -> tuple[Any, list[int]]:
    """How many steps each environment takes in the second half, and who sits with whom then."""
    counts = np.zeros(NUM_ENVS, dtype=np.int64)
    where = {"backend": "process", "num_workers": 4, "batch_size": 2, "autoreset": mode}
    with shoal.make(crew(slow_s), **where) as envs:
        envs.reset(seed=0)
        envs.send(np.zeros(NUM_ENVS, dtype=np.int64))
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < lasting_s:
            batch = envs.recv()
            for env_id, row in zip(batch.env_ids, batch.observations, strict=True):
                assert decode(row).tag == env_id
            counts[batch.env_ids] += now > lasting_s / 2
            envs.send(np.zeros(len(batch.env_ids), dtype=np.int64), batch.env_ids)
        mates = [len(seat.env_ids) for seat in envs._pool.owner]
    return counts, mates


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_slow_environment_gets_a_worker_of_its_own(
    mode: str, scale: Scale, figure: Record
) -> None:
    lasting_s = float(scale(short=4, full=12))
    even, _ = steps_of(QUICK_S, lasting_s, mode)
    with_slow, mates = steps_of(SLOW_S, lasting_s, mode)
    assert mates[SLOW] == 1
    assert mates[1:] == [1, 2, 2, 2, 2, 2, 2]
    kept = float(np.median(with_slow[2:] / even[2:]))
    mate = with_slow[1] / even[1]
    figure("F5", f"one env 50 times slower, {mode}", f"others keep {kept:.0%}, its mate {mate:.0%}")
    assert with_slow[1] > 5 * with_slow[SLOW], "its mate still waits for it"


def test_where_all_step_together_nobody_moves() -> None:
    with shoal.make(crew(SLOW_S), backend="process", num_workers=4) as envs:
        envs.reset(seed=0)
        for _ in range(30):
            envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
        assert [seat.index for seat in envs._pool.owner] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_one_that_keeps_more_than_its_generator_stays_where_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In mode same_step its new episode has begun before it could move, and cannot be had again."""

    class Remembering(Sleepy):
        def __init__(self, tag: int, sleep_s: float) -> None:
            super().__init__(tag, sleep_s)
            self.history = True

    times = [0.02 if tag == SLOW else 0.0 for tag in range(4)]
    worlds = [functools.partial(Remembering, tag, sleep_s) for tag, sleep_s in enumerate(times)]
    with shoal.make(worlds, backend="process", num_workers=2, autoreset="same_step") as envs:
        envs.reset(seed=0)
        envs.send(np.zeros(4, dtype=np.int64))
        ends = 0
        while ends < 3:
            batch = envs.recv(1)
            is_slow = batch.env_ids == SLOW
            ends += int((batch.terminations | batch.truncations)[is_slow].sum())
            envs.send(np.zeros(len(batch.env_ids), dtype=np.int64), batch.env_ids)
        assert envs._pool.owner[SLOW].index == 0
    assert caplog.text.count("cannot move to another worker") == 1
