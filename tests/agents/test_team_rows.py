"""A team as independent rows, held against the team itself."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pytest
from players import NAMES, Meadow

import shoal
from shoal.errors import ConfigError
from shoal.vector.agents.rows import rows_of_team

NUM_ENVS = 3


def team(**settings: Any) -> Any:
    kwargs = {"backend": "serial", "autoreset": "same_step"} | settings
    return shoal.make_team(Meadow, NUM_ENVS, **kwargs)


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_rows_are_the_agents_of_the_team(backend: str) -> None:
    random = np.random.default_rng(0)
    num_finals = 0
    with team(backend=backend) as plain, closing(rows_of_team(team(backend=backend))) as rows:
        assert rows.num_envs == NUM_ENVS * len(NAMES)
        seen, infos = rows.reset(seed=3)
        expected, _ = plain.reset(seed=3)
        assert np.array_equal(infos["present"], plain.alive.reshape(-1))
        for _ in range(40):
            for k, name in enumerate(NAMES):
                assert np.array_equal(seen[k :: len(NAMES)], expected[name])
            before = plain.alive.reshape(-1).copy()
            actions = random.integers(3, size=rows.num_envs)
            seen, rewards, terminations, truncations, infos = rows.step(actions)
            expected, *told, finals = plain.step(
                {name: actions[k :: len(NAMES)] for k, name in enumerate(NAMES)}
            )
            assert np.array_equal(infos["present"], before)
            for k, name in enumerate(NAMES):
                found = (rewards, terminations, truncations)
                for one, other in zip(found, told, strict=True):
                    assert np.array_equal(one[k :: len(NAMES)], other[name])
            for row in np.flatnonzero(terminations | truncations):
                env_id, k = divmod(row, len(NAMES))
                last = expected[NAMES[k]][env_id]
                if finals.get("_final_obs", np.zeros(NUM_ENVS, bool))[env_id]:
                    last = finals["final_obs"][env_id][NAMES[k]]
                assert np.array_equal(infos["final_obs"][row], last)
                num_finals += 1
    assert num_finals > 20


def test_what_cannot_be_rows_is_refused() -> None:
    with team(autoreset="next_step") as envs, pytest.raises(ConfigError, match="same step"):
        rows_of_team(envs)
    different = shoal.make_team(
        partial(Meadow, alike=False), 2, backend="serial", autoreset="same_step"
    )
    with different, pytest.raises(ConfigError, match="different things"):
        rows_of_team(different)
