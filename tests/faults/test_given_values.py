"""What the caller changes after it was given: environments that are rebuilt get what was sent."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from conftest import SETTINGS, Make, Setting
from faults.recovering import kill_worker

NUM_ENVS = 4
LOSING = [one for one in SETTINGS if one.backend in ("process", "hybrid") and one.num_workers == 2]


class Lists(spaces.Space[Any]):
    """Lists of numbers, of which arrays cannot be made."""

    def __init__(self) -> None:
        super().__init__(None, None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lists)

    def contains(self, x: Any) -> bool:
        return isinstance(x, list)


class Sum(gymnasium.Env[Any, Any]):
    """Adds what it is told in each step to what it began with; ends after `length` steps."""

    observation_space = spaces.Box(-1e9, 1e9, (1,), np.float64)
    action_space = Lists()
    length = 1000

    def __init__(self) -> None:
        self.extra: Any = {"by": [0]}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.total = float(options.pop("task")["start"][0]) if options else 0.0
        self.count = 0
        return np.array([self.total]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        self.total += action[0] + self.extra["by"][0]
        return np.array([self.total]), self.total, self.count == self.length, False, {}


class Short(Sum):
    length = 2


def told(number: int) -> list[list[int]]:
    return [[number] for _ in range(NUM_ENVS)]


def shown(observations: Any) -> Any:
    return observations[:, 0].tolist()


@pytest.mark.parametrize("setting", LOSING, indirect=True, ids=str)
def test_actions_in_a_list_that_is_used_again_are_replayed_as_they_were(make: Make) -> None:
    envs, actions = make([Sum] * NUM_ENVS, on_failure="replay"), told(0)
    envs.reset()
    for number in (1, 2, 3):
        for one in actions:
            one[0] = number
        envs.step(actions)
    kill_worker(envs, 1)
    assert shown(envs.step(told(10))[0]) == [16.0] * NUM_ENVS
    assert envs.stats()["restarts"] == 0


@pytest.mark.parametrize("setting", LOSING, indirect=True, ids=str)
def test_sent_actions_are_those_that_were_sent(make: Make) -> None:
    envs, actions = make([Sum] * NUM_ENVS, on_failure="replay"), told(1)
    envs.reset()
    envs.send(actions[:2], [0, 2])
    envs.send(actions[2:], [1, 3])
    for one in actions:
        one[0] = 100
    assert shown(envs.recv(NUM_ENVS).observations) == [1.0] * NUM_ENVS
    kill_worker(envs, 1)
    assert shown(envs.step(told(10))[0]) == [11.0] * NUM_ENVS
    assert envs.stats()["restarts"] == 0


@pytest.mark.parametrize("how", ["reset", "set_next_reset"])
@pytest.mark.parametrize("setting", LOSING, indirect=True, ids=str)
def test_options_that_are_changed_later_are_replayed_as_they_were(make: Make, how: str) -> None:
    envs, options = make([Short] * NUM_ENVS, on_failure="replay"), {"task": {"start": [7]}}
    if how == "reset":
        envs.reset(options=options)
    else:
        envs.reset()
        envs.set_next_reset(range(NUM_ENVS), options=options)
        for _ in range(2):
            envs.step(told(1))
        kill_worker(envs, 1)
        options["task"]["start"][0] = 100
        envs.step(told(1))  # which resets
    envs.step(told(1))
    options["task"]["start"][0] = 100
    kill_worker(envs, 1)
    assert shown(envs.step(told(1))[0]) == [9.0] * NUM_ENVS
    assert envs.stats()["restarts"] == 0


@pytest.mark.parametrize("when", ["before the episode", "in it"])
@pytest.mark.parametrize("setting", LOSING, indirect=True, ids=str)
def test_attributes_that_are_changed_later_are_replayed_as_they_were(make: Make, when: str) -> None:
    envs, extra = make([Sum] * NUM_ENVS, on_failure="replay"), {"by": [5]}
    if when == "in it":
        envs.reset()
    envs.set_attr("extra", extra)
    if when == "before the episode":
        envs.reset()
    envs.step(told(0))
    extra["by"] = [1000]
    kill_worker(envs, 1)
    assert shown(envs.step(told(0))[0]) == [10.0] * NUM_ENVS
    assert envs.stats()["restarts"] == 0


def test_an_environment_that_moves_takes_along_what_the_others_have(
    make: Make, setting: Setting
) -> None:
    envs, extra = make([Short] * NUM_ENVS, num_workers=1), {"by": [5]}
    envs.set_attr("extra", extra)
    envs.reset()
    extra["by"] = [1000]
    envs.resize(num_workers=2)
    for _ in range(5):
        observations = envs.step(told(0))[0]
    assert len(set(shown(observations))) == 1
    if setting.backend in ("process", "hybrid"):  # elsewhere they have the very object
        assert shown(observations) == [10.0] * NUM_ENVS


def test_a_branch_takes_the_episode_as_it_was(make: Make) -> None:
    envs, actions, options = make([Sum] * NUM_ENVS), told(0), {"task": {"start": [7]}}
    envs.reset(options=options)
    for number in (1, 2):
        for one in actions:
            one[0] = number
        envs.step(actions)
    options["task"]["start"][0] = 100
    actions[0][0] = 100
    envs.branch(0, [1, 3])
    assert shown(envs.step(told(0))[0]) == [10.0] * NUM_ENVS


def test_what_cannot_be_copied_is_given_as_it_is(make: Make, setting: Setting) -> None:
    if setting.backend in ("process", "hybrid"):
        pytest.skip("it does not travel")
    envs, stream = make([Sum] * NUM_ENVS), (number for number in range(3))
    envs.set_attr("stream", stream)
    envs.reset(options={"task": {"start": [7], "stream": stream}})
    envs.branch(0, [1])
    assert all(one is stream for one in envs.get_attr("stream"))
