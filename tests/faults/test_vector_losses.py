"""A vector environment inside a worker is lost as a whole; each of its rows tells so once."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import shoal
from faults.recovering import Scripted, kill_worker
from shoal import ConfigError, ContractError, Faults
from shoal.testing import CountingWorld
from shoal.vector.make import as_mode

LENIENT = Faults(on_error="restart")


class Brief(CountingWorld):
    min_steps = max_steps = 2


class Long(Scripted):
    min_steps = max_steps = 20


def pair(folder: Path, mode: str, *script: tuple[str, str]) -> Any:
    """Two rows: one has ended after two steps, the other follows a script."""
    long = functools.partial(Long, 1, folder=folder, script=script)
    return lambda: SyncVectorEnv([Brief, long], autoreset_mode=as_mode(mode))


def step(envs: shoal.VectorEnv) -> Any:
    return envs.step(np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize("how", ["raised", "died"])
def test_a_row_that_had_ended_tells_the_loss_and_counts_no_second_episode(
    how: str, tmp_path: Path
) -> None:
    script = [("step 3", "raise")] if how == "raised" else []
    with shoal.make(
        pair(tmp_path, "next_step", *script), 2, backend="process", faults=LENIENT
    ) as envs:
        envs.reset(seed=0)
        assert [step(envs)[2].tolist() for _ in range(2)] == [[False, False], [True, False]]
        if how == "died":
            kill_worker(envs, 0)
        *_, truncations, infos = step(envs)
        assert truncations.tolist() == infos["restarted"].tolist() == [True, True]
        assert step(envs)[3].tolist() == [False, False]
        stats = envs.stats()
        assert (stats["episodes"], stats["episode_lengths"]) == (2, [2, 2])


@pytest.mark.parametrize("how", ["raised", "died"])
def test_a_row_of_a_rebuilt_group_cannot_be_reset_alone(how: str, tmp_path: Path) -> None:
    script = [("step 1", "none"), ("reset", "raise")] if how == "raised" else []
    with shoal.make(
        pair(tmp_path, "disabled", *script),
        2,
        backend="process",
        autoreset="disabled",
        faults=LENIENT,
    ) as envs:
        envs.reset(seed=0)
        step(envs)
        if how == "died":
            kill_worker(envs, 0)
        with pytest.raises(ContractError, match="Reset all of them"):
            envs.reset_envs([1])
        envs.reset()
        assert step(envs)[3].tolist() == [False, False]


def test_their_workers_cannot_be_recycled(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_worker_rss_mb"):
        shoal.make(
            pair(tmp_path, "next_step"),
            2,
            backend="process",
            faults=Faults(max_worker_rss_mb=1000.0),
        )
