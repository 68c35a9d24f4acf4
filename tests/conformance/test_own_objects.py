"""Whose objects they are: those in observations and infos are the caller's, as arrays are."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from conftest import ISOLATED, Make
from faults.recovering import kill_worker
from trace_of import assert_same

NUM_ENVS, LENGTH = 4, 3
STEP = np.zeros(NUM_ENVS, dtype=np.int64)


class Lists(spaces.Space[Any]):
    """Lists of numbers, of which arrays cannot be made."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def contains(self, x: Any) -> bool:
        return isinstance(x, list)


class Notebook(gymnasium.Env[Any, Any]):
    """Writes how far it is into the same objects again and again, and shows these."""

    observation_space = spaces.Dict(page=Lists(), row=spaces.Box(0, 9, (1,), np.float32))
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.page, self.row = [0], np.zeros(1, np.float32)
        self.info: dict[str, Any] = {"path": [], "at": np.zeros(2), "deep": {"at": np.zeros(2)}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count = 0
        self.info["path"].clear()
        return self.write()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.info["path"].append(self.count)
        observation, info = self.write()
        return observation, 0.0, self.count == LENGTH, False, info

    def write(self) -> tuple[Any, dict[str, Any]]:
        for array in (self.page, self.row, self.info["at"], self.info["deep"]["at"]):
            array[0] = self.count
        return {"page": self.page, "row": self.row}, self.info


def pages(observations: Any) -> list[int]:
    return [page[0] for page in observations["page"]]


def test_the_last_observation_is_not_that_of_the_next_episode(make: Make) -> None:
    envs = make([Notebook] * NUM_ENVS, autoreset="same_step")
    envs.reset()
    for _ in range(2 * LENGTH):
        observations, _, terminations, _, infos = envs.step(STEP)
        if terminations.all():
            assert pages(observations) == [0] * NUM_ENVS
            assert [one["page"] for one in infos["final_obs"]] == [[LENGTH]] * NUM_ENVS
            assert [one["row"][0] for one in infos["final_obs"]] == [LENGTH] * NUM_ENVS


def test_the_last_info_is_not_that_of_the_next_episode(make: Make) -> None:
    envs = make([Notebook] * NUM_ENVS, autoreset="same_step")
    envs.reset()
    for _ in range(3):
        for _ in range(LENGTH):
            infos = envs.step(STEP)[4]
        final = infos["final_info"]
        assert final["at"][:, 0].tolist() == [LENGTH] * NUM_ENVS
        assert final["deep"]["at"][:, 0].tolist() == [LENGTH] * NUM_ENVS
        assert final["path"].tolist() == [[1, 2, 3]] * NUM_ENVS


def test_what_was_handed_out_does_not_change(make: Make, mode: str) -> None:
    envs = make([Notebook] * NUM_ENVS, autoreset=mode)
    trace: list[Any] = [envs.reset()]
    as_it_was = copy.deepcopy(trace)
    for _ in range(3 * LENGTH):
        trace.append(envs.step(STEP))
        as_it_was.append(copy.deepcopy(trace[-1]))
        ended = trace[-1][2]
        if mode == "disabled" and ended.any():
            trace.append(envs.reset(options={"reset_mask": ended}))
            as_it_was.append(copy.deepcopy(trace[-1]))
    assert_same(trace, as_it_was)


@pytest.mark.parametrize("setting", ISOLATED, indirect=True, ids=str)
@pytest.mark.parametrize("copies", [True, False])
def test_what_the_caller_changes_is_nobody_elses(make: Make, copies: bool) -> None:
    envs = make([Notebook] * NUM_ENVS, on_failure="replay", copy=copies)
    envs.reset()
    for batch in (lambda: envs.step(STEP)[0], lambda: receive(envs)):
        for page in batch()["page"]:
            page[0] = 99
    kill_worker(envs, 0)
    assert pages(envs.step(STEP)[0]) == [3] * NUM_ENVS
    assert envs.stats()["restarts"] == 0


def receive(envs: Any) -> Any:
    envs.send(STEP)
    return envs.recv(NUM_ENVS).observations


def test_a_branch_shares_nothing_with_where_it_came_from(make: Make) -> None:
    envs = make([Notebook] * NUM_ENVS)
    envs.reset()
    envs.step(STEP)
    envs.branch(0, [1])
    mask = np.arange(NUM_ENVS) == 3
    first = envs.reset(options={"reset_mask": mask})[0]["page"]
    first[0][0] = 99
    assert first[1] == [1]
    assert pages(envs.reset(options={"reset_mask": mask})[0]) == [1, 1, 1, 0]
