"""A step to which some workers have more to say than others: nobody waits for a signal twice."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.engine.backends import thread
from shoal.engine.backends.process import outside
from shoal.testing import CountingWorld

NUM_ENVS = 3


class Talkative(CountingWorld):
    """One of them has an info that has to travel, with each of its steps."""

    min_steps = max_steps = 100
    talker = 0

    def step(self, action: Any) -> Any:
        *results, info = super().step(action)
        return *results, {**info, "said": "more"} if self.tag == self.talker else info


@pytest.mark.timeout(30)
@pytest.mark.parametrize("talker", range(NUM_ENVS))
@pytest.mark.parametrize("backend", ["thread", "process", "hybrid"])
def test_only_whoever_has_more_to_say_is_heard_out(
    backend: str, talker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Should anyone wait for what has come already, it will be for longer than this test may take.
    monkeypatch.setattr(outside, "PARK_S", 60.0)
    monkeypatch.setattr(thread, "_ON_THE_WAY_S", 60.0)

    class World(Talkative):
        pass

    World.talker = talker
    worlds = [functools.partial(World, tag) for tag in range(NUM_ENVS)]
    with shoal.make(worlds, backend=backend, num_workers=NUM_ENVS) as envs:
        envs.reset(seed=0)
        for _ in range(30):
            *_, infos = envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
            assert infos["_said"].tolist() == [tag == talker for tag in range(NUM_ENVS)]
