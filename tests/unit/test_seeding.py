"""Are all seeds of a run distinct, stable, and those that Gymnasium would use?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ContractError
from shoal.seeding import env_seed, evaluation_seed, seeds_of


@settings(deadline=None)
@given(run_seed=st.integers(0, 2**60), env_id=st.integers(0, 5000))
def test_the_first_seed_of_an_environment_is_gymnasiums(run_seed: int, env_id: int) -> None:
    assert env_seed(run_seed, env_id) == run_seed + env_id


def test_seeds_after_restarts_and_for_evaluation_are_fixed_for_ever() -> None:
    """Known answers: another value here would silently change every run that people repeat."""
    assert env_seed(7, 3, 1) == 4540798305935340085
    assert env_seed(7, 3, 2) == 3228603420555039503
    assert env_seed(0, 0, 1) == 3987079565831918112
    assert evaluation_seed(7, 3) == 4170377489823639012
    assert evaluation_seed(0, 0) == 4448682075775210347


@pytest.mark.parametrize("run_seed", [0, 7, 2**32 - 1])
def test_all_seeds_of_a_run_of_1024_environments_are_distinct(run_seed: int) -> None:
    seeds = [env_seed(run_seed, i, restart) for i in range(1024) for restart in range(6)]
    seeds += [evaluation_seed(run_seed, i) for i in range(1024)]
    assert len(set(seeds)) == len(seeds) == 1024 * 7


def test_neighbouring_run_seeds_share_no_hashed_seed() -> None:
    hashed = [
        seed
        for run_seed in range(20)
        for i in range(50)
        for seed in (env_seed(run_seed, i, 1), evaluation_seed(run_seed, i))
    ]
    assert len(set(hashed)) == len(hashed)


@settings(deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 5000), st.integers(1, 100))
def test_hashed_seeds_are_62_bits_wide_so_that_no_small_seed_meets_them(
    run_seed: int, env_id: int, restart: int
) -> None:
    for seed in (env_seed(run_seed, env_id, restart), evaluation_seed(run_seed, env_id)):
        assert 2**61 <= seed < 2**62


def test_environments_accept_every_seed() -> None:
    for seed in (env_seed(7, 3), env_seed(7, 3, 1), evaluation_seed(7, 3)):
        np.random.default_rng(seed)
        assert type(seed) is int


# --- what a user may pass ----------------------------------------------------


def test_no_seed_is_none_for_everyone() -> None:
    assert seeds_of(None, 3) == [None, None, None]


@pytest.mark.parametrize("seed", [5, np.int64(5), np.uint8(5), np.array(5)], ids=repr)
def test_one_integer_counts_up(seed: Any) -> None:
    seeds = seeds_of(seed, 3)
    assert seeds == [5, 6, 7]
    assert {type(one) for one in seeds} == {int}


def test_counting_starts_at_the_first_id() -> None:
    assert seeds_of(5, 2, first_id=10) == [15, 16]


@pytest.mark.parametrize(
    "seeds",
    [[4, None, 2], (4, None, 2), [np.int32(4), None, np.uint64(2)]],
    ids=["list", "tuple", "numpy"],
)
def test_a_list_gives_each_environment_its_own(seeds: Any) -> None:
    assert seeds_of(seeds, 3) == [4, None, 2]


def test_an_array_gives_each_environment_its_own() -> None:
    seeds = seeds_of(np.array([4, 0, 2]), 3)
    assert seeds == [4, 0, 2]
    assert {type(one) for one in seeds} == {int}


@pytest.mark.parametrize("seed", [-1, 1.0, 1.5, "7", b"7", np.float64(3), set(), {}], ids=repr)
def test_what_is_no_whole_number_from_zero_up_is_refused(seed: Any) -> None:
    with pytest.raises(ContractError, match="A seed must"):
        seeds_of(seed, 3)
    with pytest.raises(ContractError, match="A seed must"):
        seeds_of([0, seed, 2], 3)


@pytest.mark.parametrize("seeds", [[], [1], [1, 2, 3, 4], np.arange(4)], ids=len)
def test_a_list_of_another_length_is_refused_with_both_lengths(seeds: Any) -> None:
    with pytest.raises(ContractError) as caught:
        seeds_of(seeds, 3)
    assert "num_envs=3" in str(caught.value)
    assert f"length={len(seeds)}" in str(caught.value)
