"""Code written for Gymnasium's vector environments works on ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import vector as wrappers

import shoal
from conftest import Make
from shoal.testing import CountingWorld, check_vector_env
from shoal.vector.make import as_mode
from trace_of import assert_same, run

WRAPPERS: dict[str, Any] = {
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "ClipReward": lambda envs: wrappers.ClipReward(envs, -0.5, 0.5),
    "NormalizeReward": wrappers.NormalizeReward,
    "DtypeObservation": lambda envs: wrappers.DtypeObservation(envs, np.float64),
    "FlattenObservation": wrappers.FlattenObservation,
    "DictInfoToList": wrappers.DictInfoToList,
}


def without_times(value: Any) -> Any:
    """Episode statistics hold how long an episode took, which no two runs share."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in ("t", "_t")}
    if isinstance(value, (list, tuple)):
        return [without_times(one) for one in value]
    return value


@pytest.mark.parametrize("name", WRAPPERS)
def test_gymnasiums_wrappers_give_on_ours_what_they_give_on_theirs(make: Make, name: str) -> None:
    theirs = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync")
    expected = run(WRAPPERS[name](theirs), 60)
    theirs.close()
    got = run(WRAPPERS[name](make("CartPole-v1", 4)), 60)
    assert_same(without_times(got), without_times(expected))


def test_observations_are_normalised_as_on_theirs(make: Make) -> None:
    theirs = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="sync")
    expected = run(wrappers.NormalizeObservation(theirs), 60)
    theirs.close()
    assert_same(run(wrappers.NormalizeObservation(make("CartPole-v1", 4)), 60), expected)


def test_videos_are_recorded(make: Make, tmp_path: Path) -> None:
    envs = wrappers.RecordVideo(
        make("CartPole-v1", 2, env_kwargs={"render_mode": "rgb_array"}),
        str(tmp_path / "videos"),
        step_trigger=lambda step: step == 0,
        video_length=5,
    )
    envs.reset(seed=0)
    for _ in range(8):
        envs.step(envs.action_space.sample())
    envs.close()
    assert len(list((tmp_path / "videos").glob("*.mp4"))) == 1


@pytest.mark.parametrize("copy", [True, False])
def test_our_own_checker_finds_nothing(make: Make, mode: str, copy: bool) -> None:
    def factory() -> Any:
        return CountingWorld(obs="dict", infos="mixed", reuse_buffer=True)

    report = check_vector_env(make(factory, 4, autoreset=mode, copy=copy), steps=60)
    assert report.ok, str(report)
    assert not report.warnings, str(report)


@pytest.mark.parametrize("kind", ["SyncVectorEnv", "AsyncVectorEnv"])
def test_the_drop_ins_give_the_trace_of_gymnasiums_own(kind: str, mode: str) -> None:
    import shoal.vector.gym

    factories = [lambda: gymnasium.make("FrozenLake-v1", is_slippery=True)] * 3
    original = getattr(gymnasium.vector, kind)(factories, autoreset_mode=as_mode(mode))
    expected = run(original, 80, mode=mode)
    original.close()
    drop_in = getattr(shoal.vector.gym, kind)(factories, autoreset_mode=as_mode(mode).value)
    assert_same(run(drop_in, 80, mode=mode), expected)
    drop_in.close()


def test_all_seeds_of_a_thousand_environments_are_distinct() -> None:
    with shoal.make(CountingWorld, 1024, backend="serial") as envs:
        observations, _ = envs.reset(seed=11)
    assert len(set(observations[:, 0].tolist())) == 1024
