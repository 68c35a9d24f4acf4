"""Does a saved episode go on as if it had never been left?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.recovering import kill_worker
from gameboy import cartridges
from shoal.envs.gameboy import ACTIONS, TIDEKEEP, GameBoyEnv
from trace_of import assert_same

SETTINGS: dict[str, dict[str, Any]] = {
    "ram": {},
    "pixels": {"observation": "pixels"},
    "both": {"observation": "both"},
    "native": {"observation": "pixels", "screen": "native"},
    "new cells": {"novelty": "ram"},
    "new rooms": {"observation": "pixels", "novelty": "screen"},
}
LENGTH, SAVED_AT = 150, 70


def walk(count: int) -> list[int]:
    """Between rooms, to and fro, so that what has been seen matters."""
    chance = np.random.default_rng(4).integers(len(ACTIONS), size=count)
    return [5] * 6 + [6] * 12 + [int(one) for one in chance]


def env_with(setting: str) -> GameBoyEnv:
    return GameBoyEnv(episode_length=LENGTH, stack=4, **SETTINGS[setting])


@pytest.mark.parametrize("setting", SETTINGS)
def test_it_goes_on_identically_to_its_end(setting: str) -> None:
    actions = walk(LENGTH)[:LENGTH]
    env, other = env_with(setting), env_with(setting)
    env.reset(seed=6)
    for action in actions[:SAVED_AT]:
        observation, *_ = env.step(action)
    saved = env.save()
    expected = [env.step(action) for action in actions[SAVED_AT:]]
    assert expected[-1][3], "it ends by its length, which began before it was saved"
    other.reset(seed=1)
    other.step(3)
    for _ in range(2):
        first, info = other.reset(seed=0, options={"state": saved})
        assert_same(first, observation)
        assert info == {}
        assert_same([other.step(action) for action in actions[SAVED_AT:]], expected)
    env.close()
    other.close()


def test_what_was_new_before_is_not_new_after() -> None:
    """Unlike in an episode that begins where only the console was saved."""
    env = env_with("new rooms")
    env.reset(seed=6)
    for _ in range(5):
        *_, info = env.step(5)
    assert "new_room" in info
    rewards = []
    for given in (env.save(), env.save_state()):
        env.reset(options={"state": given})
        rewards.append(sum(env.step(6)[1] for _ in range(2)))
    assert rewards[1] == rewards[0] + 1
    env.close()


def test_a_button_that_is_held_is_not_pressed_anew(tmp_path: Path) -> None:
    env = GameBoyEnv(*cartridges.write(tmp_path))
    env.reset()
    env.step(ACTIONS.index("right"))
    saved, state = env.save(), env.save_state()
    for given, presses in ((saved, 1), (state, 2)):
        env.reset(options={"state": given})
        env.step(ACTIONS.index("right"))
        assert env.peek("presses") == presses
        env.step(ACTIONS.index("a"))
        env.step(ACTIONS.index("right"))
        assert env.peek("at") == 12
    env.close()


def test_the_console_alone_can_be_taken_from_it(tmp_path: Path) -> None:
    """By PyBoy, which reads the state and nothing behind it."""
    env = GameBoyEnv(*cartridges.write(tmp_path))
    env.reset()
    env.step(ACTIONS.index("right"))
    saved, state = env.save(), env.save_state()
    assert saved.startswith(state)
    env.step(ACTIONS.index("right"))
    assert env.console is not None
    env.console.load(state)
    assert env.peek("at") == 4
    env.close()


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_vector_environments_go_on_with_it_also_after_a_loss(backend: str) -> None:
    kwargs = {"observation": "both", "novelty": "screen", "episode_length": LENGTH}
    actions = walk(40)
    env = GameBoyEnv(**kwargs)  # type: ignore[arg-type]
    env.reset(seed=3)
    for action in actions[:8]:
        env.step(action)
    saved = env.save()
    expected = [env.step(action) for action in actions[8:]]
    env.close()
    workers = {"serial": 1, "process": 2}[backend]
    made = f"shoal.envs.gameboy:{TIDEKEEP}"
    with shoal.make(
        made, 2, backend=backend, num_workers=workers, env_kwargs=kwargs, on_failure="replay"
    ) as envs:
        envs.reset(seed=0)
        envs.reset_envs([1], options=[{"state": saved}])
        for turn, action in enumerate(actions[8:]):
            if turn == 20 and backend == "process":
                kill_worker(envs, 1)
            observation, rewards, terminated, truncated, _ = envs.step([0, action])
            assert_same({name: part[1] for name, part in observation.items()}, expected[turn][0])
            assert (rewards[1], terminated[1], truncated[1]) == expected[turn][1:4]
        assert envs.stats()["replays"] == (backend == "process")


@pytest.mark.parametrize(
    ("setting", "changed", "message"),
    [
        ("ram", "pixels", r"frames of shape None, expected \(4, 84, 84\)"),
        ("native", "pixels", r"frames of shape \(4, 144, 160\), expected \(4, 84, 84\)"),
        ("pixels", "new rooms", r"sights of shape None, expected \(360,\)"),
    ],
)
def test_an_environment_that_it_does_not_fit_refuses_it(
    setting: str, changed: str, message: str
) -> None:
    env, other = env_with(setting), env_with(changed)
    env.reset(seed=0)
    other.reset(seed=0)
    with pytest.raises(shoal.ConfigError, match=message):
        other.reset(options={"state": env.save()})
    other.reset(seed=0)
    env.close()
    other.close()


def test_one_that_is_damaged_is_refused() -> None:
    env = env_with("pixels")
    with pytest.raises(shoal.ContractError, match="save was called before reset"):
        env.save()
    env.reset(seed=0)
    saved = env.save()
    for wrong in (saved[-300:], saved[:-200] + bytes(100) + saved[-100:]):
        with pytest.raises(shoal.ConfigError, match=r"the saved episode .* cannot be loaded"):
            env.reset(options={"state": wrong})
    env.close()
