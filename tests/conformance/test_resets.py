"""Resets: masks, seeds and options of each environment, and what automatic resets use."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from conftest import Make
from shoal import ContractError, EnvRaised
from shoal.testing import CountingWorld, decode

NUM_ENVS = 5


def worlds(**kwargs: Any) -> list[Any]:
    return [functools.partial(CountingWorld, tag, **kwargs) for tag in range(NUM_ENVS)]


def field(observations: np.ndarray, name: str) -> list[int]:
    return [getattr(decode(row), name) for row in observations]


def zeros(count: int = NUM_ENVS) -> np.ndarray:
    return np.zeros(count, dtype=np.int64)


def test_an_integer_seed_counts_up(make: Make) -> None:
    observations, _ = make(worlds()).reset(seed=10)
    assert field(observations, "seed") == [10, 11, 12, 13, 14]
    assert field(observations, "tag") == [0, 1, 2, 3, 4]


def test_numpy_integers_and_lists_are_seeds_too(make: Make) -> None:
    envs = make(worlds())
    assert field(envs.reset(seed=np.int64(3))[0], "seed") == [3, 4, 5, 6, 7]
    assert field(envs.reset(seed=[9, None, 7, None, 5])[0], "seed") == [9, 4, 7, 6, 5]


def test_the_first_reset_uses_the_seed_given_to_make(make: Make) -> None:
    envs = make(worlds(), seed=20)
    assert field(envs.reset()[0], "seed") == [20, 21, 22, 23, 24]
    again, _ = envs.reset()
    assert field(again, "episode") == [1] * NUM_ENVS


def test_an_explicit_seed_wins_over_the_one_given_to_make(make: Make) -> None:
    envs = make(worlds(), seed=20)
    assert field(envs.reset(seed=1)[0], "seed") == [1, 2, 3, 4, 5]
    assert field(envs.reset()[0], "seed") == [1, 2, 3, 4, 5]


def test_options_are_for_all_or_for_each(make: Make) -> None:
    envs = make(worlds())
    assert field(envs.reset(options={"task": 4})[0], "task") == [4] * NUM_ENVS
    each = [{"task": k * k} for k in range(NUM_ENVS - 1)] + [None]
    assert field(envs.reset(options=each)[0], "task") == [0, 1, 4, 9, 0]
    with pytest.raises(ContractError, match="options holds 2 entries; expected 5"):
        envs.reset(options=[{}, {}])


def test_a_mask_resets_only_what_it_names(make: Make, mode: str) -> None:
    envs = make(worlds(infos="numeric"), autoreset=mode)
    envs.reset(seed=0)
    stepped = envs.step(zeros())[0]
    mask = np.array([True, False, True, False, False])
    options = {"reset_mask": mask, "task": 3}
    observations, infos = envs.reset(seed=[50, 51, 52, 53, 54], options=options)
    assert options.keys() == {"reset_mask", "task"}, "the caller's dict is left as it was"
    assert field(observations, "seed") == [50, 1, 52, 3, 4]
    assert field(observations, "task") == [3, 0, 3, 0, 0]
    assert (observations[~mask] == stepped[~mask]).all()
    assert infos["_step"].tolist() == mask.tolist()


def test_a_wrong_mask_is_refused_as_gymnasium_does(make: Make) -> None:
    envs = make(worlds())
    with pytest.raises(TypeError, match="must be a numpy array"):
        envs.reset(options={"reset_mask": [True] * NUM_ENVS})
    with pytest.raises(ValueError, match=r"must have shape `\(5,\)`"):
        envs.reset(options={"reset_mask": np.array([True])})
    with pytest.raises(TypeError, match="dtype=np"):
        envs.reset(options={"reset_mask": np.ones(NUM_ENVS)})
    with pytest.raises(ValueError, match="at least one True"):
        envs.reset(options={"reset_mask": np.zeros(NUM_ENVS, dtype=bool)})


def test_reset_envs_gives_each_its_own_task_in_the_order_asked(make: Make, mode: str) -> None:
    envs = make(worlds(infos="numeric"), autoreset=mode)
    envs.reset(seed=0)
    envs.step(zeros())
    observations, infos = envs.reset_envs([3, 1], seeds=[70, None], options=[{"task": 8}, None])
    assert field(observations, "tag") == [3, 1]
    assert field(observations, "seed") == [70, 1]
    assert field(observations, "task") == [8, 0]
    assert infos["trail"][:, 0].tolist() == [3, 1]
    steps = [record.step for record in envs.call("record")]
    assert steps == [1, 0, 1, 0, 1]


def test_an_integer_seed_of_reset_envs_means_the_same_as_everywhere(make: Make) -> None:
    envs = make(worlds())
    observations, _ = envs.reset_envs([4, 2], seeds=100)
    assert field(observations, "seed") == [104, 102]


def run_until_ended(envs: Any, env_id: int) -> tuple[Any, dict[str, Any]]:
    """Step until this environment's episode ends; what that step returned."""
    for _ in range(30):
        observations, _, terminated, truncated, infos = envs.step(zeros())
        if terminated[env_id] or truncated[env_id]:
            return observations, infos
    raise AssertionError("no episode ended")


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_the_next_automatic_reset_uses_what_was_set_once(make: Make, autoreset: str) -> None:
    envs = make(worlds(), autoreset=autoreset)
    envs.reset(seed=0)
    envs.set_next_reset([2], seeds=[500], options=[{"task": 6}])
    observations, _ = run_until_ended(envs, 2)
    if autoreset == "next_step":
        observations = envs.step(zeros())[0]
    assert (decode(observations[2]).seed, decode(observations[2]).task) == (500, 6)
    observations, _ = run_until_ended(envs, 2)
    if autoreset == "next_step":
        observations = envs.step(zeros())[0]
    assert (decode(observations[2]).seed, decode(observations[2]).task) == (500, 0)
    assert decode(observations[2]).episode == 1


def test_an_explicit_reset_clears_what_was_set(make: Make) -> None:
    envs = make(worlds(), autoreset="same_step")
    envs.reset(seed=0)
    envs.set_next_reset([2], options=[{"task": 6}])
    envs.reset(seed=0)
    observations, _ = run_until_ended(envs, 2)
    assert decode(observations[2]).task == 0


def test_stepping_an_ended_episode_with_resets_disabled_is_an_error(make: Make) -> None:
    envs = make(worlds(), autoreset="disabled")
    envs.reset(seed=0)
    ended = np.zeros(NUM_ENVS, dtype=bool)
    while not ended.any():
        _, _, terminated, truncated, _ = envs.step(zeros())
        ended = terminated | truncated
    first = int(np.flatnonzero(ended)[0])
    with pytest.raises(ContractError, match=f"env {first}, in step .*reset_mask"):
        envs.step(zeros())
    envs.reset(seed=0)
    envs.step(zeros())


@pytest.mark.parametrize("obs", ["vector", "dict", "mixed", "discrete"])
def test_the_last_observation_survives_a_reused_buffer(make: Make, obs: str) -> None:
    envs = make(worlds(obs=obs, reuse_buffer=True), autoreset="same_step")
    plain = make(worlds(obs=obs), autoreset="same_step")
    for one in (envs, plain):
        one.reset(seed=0)
    for _ in range(60):
        infos, expected = envs.step(zeros())[4], plain.step(zeros())[4]
        assert ("final_obs" in infos) == ("final_obs" in expected)
        for got, right in zip(
            infos.get("final_obs", ()), expected.get("final_obs", ()), strict=True
        ):
            assert repr(got) == repr(right)


def test_gymnasiums_action_of_a_resetting_step_is_ignored(make: Make) -> None:
    envs = make(worlds(), autoreset="next_step")
    envs.reset(seed=0)
    run_until_ended(envs, 1)
    actions = zeros()
    actions[1] = 10_000  # far outside the space, but it does not count
    _, rewards, terminated, truncated, _ = envs.step(actions)
    assert (rewards[1], terminated[1], truncated[1]) == (0.0, False, False)
    with pytest.raises(ContractError, match="action of env 1 is 10000, outside its space"):
        envs.step(actions)


class MustBeTold(CountingWorld):
    """Has no default for options: Gymnasium always names them."""

    def reset(self, seed: int | None, options: Any) -> Any:  # type: ignore[override]
        return super().reset(seed=seed, options=options)


class TakesNone(CountingWorld):
    """Has no word for options."""

    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


@pytest.mark.parametrize("kind", [MustBeTold, TakesNone])
def test_options_are_named_unless_there_is_no_word_for_them(make: Make, kind: Any) -> None:
    envs = make(kind, 3, autoreset="disabled")
    assert envs.reset(seed=5)[0][:, 0].tolist() == [5, 6, 7]
    assert envs.reset()[0][:, 3].tolist() == [1, 1, 1]
    if kind is TakesNone:
        with pytest.raises(EnvRaised, match="options"):
            envs.reset(options={"task": 1})
    else:
        assert envs.reset(options={"task": 1})[0][:, 5].tolist() == [1, 1, 1]
