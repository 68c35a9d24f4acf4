"""A team as independent rows, held against the team itself."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
import pytest
from players import NAMES, Meadow

import shoal
from shoal.errors import ConfigError, ContractError
from shoal.testing import check_vector_env
from shoal.vector import rows_of_team
from trace_of import assert_same

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
        expected, _ = plain.reset(seed=[3, 7, 11])  # those of the first row of each team
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


def test_rows_keep_the_contract_of_a_vector_environment() -> None:
    with closing(rows_of_team(team())) as rows:
        report = check_vector_env(rows)
        # A team begins anew as a whole, so that a row of it cannot be reset alone.
        (only,) = report.findings
        assert "some of the rows 0 to 3, which are agents of one team" in str(only)


class Telling(Meadow):
    """Whose agents say in each info who they are, and when."""

    def step(self, actions: Any) -> Any:
        *told, _ = super().step(actions)
        infos = {}
        for name in told[0]:
            infos[name] = {"time": self.time, "of": {"k": float(NAMES.index(name))}}
            if name == "bob":
                infos[name]["word"] = "bob's"
        return *told, infos


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_rows_have_the_infos_of_their_agents(backend: str) -> None:
    made = shoal.make_team(Telling, NUM_ENVS, backend=backend, autoreset="same_step")
    with closing(rows_of_team(made)) as rows:
        _, infos = rows.reset(seed=0)
        assert infos["_born"].tolist() == [True, True, True, False] * NUM_ENVS
        assert infos["born"].tolist() == [0, 1, 2, 0] * NUM_ENVS
        num_ends = 0
        for _ in range(30):
            *_, terminations, truncations, infos = rows.step(np.ones(rows.num_envs, int))
            ended = terminations | truncations
            for row in range(rows.num_envs):
                if infos.get("_of", np.zeros(rows.num_envs, bool))[row]:
                    assert infos["of"]["k"][row] == row % len(NAMES)
                    if row % len(NAMES) == 1:
                        assert infos["word"][row] == "bob's"
                if ended[row]:
                    num_ends += 1
                    last = infos["final_info"]
                    assert last["_time"][row]
                    assert 2 <= last["time"][row] <= 8
                    assert last["of"]["k"][row] == row % len(NAMES)
            if ended.any():
                assert infos["_final_info"].tolist() == ended.tolist()
        assert num_ends > 10


def test_a_mask_resets_whole_teams() -> None:
    with closing(rows_of_team(team())) as rows, team() as plain:
        rows.reset(seed=0)
        plain.reset(seed=[0, 4, 8])
        mask = np.arange(rows.num_envs) // len(NAMES) == 1
        seen, infos = rows.reset(seed=5, options={"reset_mask": mask})
        expected, _ = plain.reset(
            seed=[5, 9, 13], options={"reset_mask": np.array([False, True, False])}
        )
        for k, name in enumerate(NAMES):
            assert np.array_equal(seen[k :: len(NAMES)], expected[name])
        assert not infos["_born"][~mask].any()
        mask[4] = False
        with pytest.raises(ContractError, match="rows 4 to 7, which are agents of one team"):
            rows.reset(options={"reset_mask": mask})
        with pytest.raises(ContractError, match="expected 12, one for each row"):
            rows.step(np.zeros(3, int))


def test_options_are_one_for_each_row_and_those_of_the_first_count() -> None:
    with closing(rows_of_team(team())) as rows, team() as plain:
        options = [{"place": float(row)} for row in range(rows.num_envs)]
        seen, _ = rows.reset(seed=0, options=options)
        expected, _ = plain.reset(seed=[0, 4, 8], options=options[:: len(NAMES)])
        assert np.array_equal(seen[:: len(NAMES)], expected["ann"])
        with pytest.raises(ContractError, match="3 entries; expected 12, one for each row"):
            rows.reset(options=options[:NUM_ENVS])


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_rows_are_those_of_supersuit(backend: str) -> None:
    supersuit = pytest.importorskip("supersuit")
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3")
    one = simple_spread.parallel_env(max_cycles=7)
    theirs = supersuit.concat_vec_envs_v1(supersuit.pettingzoo_env_to_vec_env_v1(one), 2)
    factory = partial(simple_spread.parallel_env, max_cycles=7)
    made = shoal.make_team(factory, 2, backend=backend, autoreset="same_step")
    random, num_ends = np.random.default_rng(0), 0
    with closing(rows_of_team(made)) as rows:
        seen, _ = rows.reset(seed=[4, 4, 4, 5, 5, 5])  # SuperSuit counts environments, not rows
        assert_same(seen, theirs.reset(seed=4)[0])
        for _ in range(30):
            actions = random.integers(5, size=6)
            seen, rewards, terminations, truncations, infos = rows.step(actions)
            expected, gains, *ended, told = theirs.step(actions)
            assert_same((seen, rewards.astype(np.float32)), (expected, gains))
            assert_same([terminations, truncations], [one.astype(bool) for one in ended])
            for row in np.flatnonzero(truncations):
                num_ends += 1
                assert_same(infos["final_obs"][row], told[row]["terminal_observation"])
    assert num_ends == 6 * (30 // 7)


def test_what_cannot_be_rows_is_refused() -> None:
    with team(autoreset="next_step") as envs, pytest.raises(ConfigError, match="same step"):
        rows_of_team(envs)
    different = shoal.make_team(
        partial(Meadow, alike=False), 2, backend="serial", autoreset="same_step"
    )
    with different, pytest.raises(ConfigError, match="different things"):
        rows_of_team(different)
