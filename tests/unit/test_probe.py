"""Is one environment measured, in a process of its own, whatever it does there?"""

from __future__ import annotations

import functools
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from shoal.engine.backends import Terms
from shoal.engine.probe import Probe, Unprobed, is_plausible, measure, probe
from shoal.testing import CountingWorld, Saboteur

TERMS = Terms(AutoresetMode.NEXT_STEP)


class Sleeper(CountingWorld):
    """Mostly waits."""

    def step(self, action: Any) -> Any:
        time.sleep(0.002)
        return super().step(action)


class Calculator(gymnasium.Env[Any, Any]):
    """Computes without the interpreter lock, for about a millisecond and a half a step."""

    observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self._frame = np.zeros((84, 84, 4), np.uint8)
        self._numbers = np.random.default_rng(seed).random(200_000)
        return self._frame, {}

    def step(self, action: Any) -> Any:
        np.sqrt(np.sort(self._numbers.copy()))
        return self._frame, 0.0, False, False, {}


def test_it_measures_what_a_step_takes() -> None:
    found = probe(functools.partial(CountingWorld, work_s=3e-4), TERMS)
    assert isinstance(found, Probe)
    assert is_plausible(found)
    assert found.step_s >= 3e-4
    assert found.steps > 1
    assert not found.waits
    assert found.observation_bytes == CountingWorld().observation_space.sample().nbytes
    assert found.width == 1
    assert not found.uses_gpu


class Narrow(CountingWorld):
    """Of many choices two are possible; whoever takes another one loses at once."""

    def __init__(self, in_info: bool) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(50)
        self._in_info, self.num_lost, self.num_steps = in_info, 0, 0
        if not in_info:
            parts = {"action_mask": spaces.MultiBinary(50), "observation": self.observation_space}
            self.observation_space = spaces.Dict(parts)

    def _shown(self, observation: Any) -> tuple[Any, dict[str, Any]]:
        mask = np.zeros(50, np.int8)
        self.possible = [self.num_steps % 50, (self.num_steps + 7) % 50]
        mask[self.possible] = 1
        if self._in_info:
            return observation, {"action_mask": mask}
        return {"action_mask": mask, "observation": observation}, {}

    def reset(self, **kwargs: Any) -> Any:
        return self._shown(super().reset(**kwargs)[0])

    def step(self, action: Any) -> Any:
        has_lost = action not in self.possible
        self.num_steps += 1
        self.num_lost += has_lost
        observation, _, terminated, truncated, _ = super().step(0)
        seen, info = self._shown(observation)
        return seen, 0.0, has_lost or terminated, truncated, info


@pytest.mark.parametrize("in_info", [True, False])
def test_only_what_is_possible_is_tried(in_info: bool) -> None:
    env = Narrow(in_info)
    found = measure(env)
    assert env.num_steps > 50
    assert env.num_lost == 0
    assert is_plausible(found)


def test_only_legal_moves_of_a_game_are_tried() -> None:
    pytest.importorskip("pettingzoo")
    from pettingzoo.classic.connect_four import connect_four

    from shoal.vector.agents.make import as_turns

    game = connect_four.raw_env()
    env, moves, step = as_turns(game), list[bool](), game.step

    def watched(action: Any) -> None:
        if action is not None:
            mask = game.observe(game.agent_selection)["action_mask"]
            moves.append(bool(mask[action]))
        step(action)

    game.step = watched
    measure(env)
    assert len(moves) > 50
    assert all(moves)


def test_an_environment_that_sleeps_waits() -> None:
    found = probe(Sleeper, TERMS)
    assert isinstance(found, Probe)
    assert found.waits
    assert found.work_s == found.step_s > found.cpu_s


def test_whether_the_interpreter_lock_is_released_is_noticed() -> None:
    """Of several tries: what others do on this machine may spoil some of them."""
    held = [measure(CountingWorld(work_s=1e-3)).lock_free for _ in range(3)]
    freed = [measure(Sleeper()).lock_free for _ in range(3)]
    assert None not in held + freed
    assert min(held) < max(freed)


def test_nobody_looks_at_the_lock_of_a_cheap_environment() -> None:
    assert measure(gymnasium.make("CartPole-v1")).lock_free is None


def test_a_large_observation_shows() -> None:
    assert measure(Calculator()).observation_bytes == 84 * 84 * 4


def test_a_dict_of_observations_counts_in_full() -> None:
    world = CountingWorld(obs="dict")
    observation, _ = world.reset(seed=0)
    expected = sum(np.asarray(value).nbytes for value in observation.values())
    assert measure(world).observation_bytes == expected


def test_a_vector_environment_is_measured_by_environment() -> None:
    found = probe(lambda: SyncVectorEnv([CountingWorld] * 4), TERMS)
    assert isinstance(found, Probe)
    assert found.width == 4
    assert found.observation_bytes == CountingWorld().observation_space.sample().nbytes


def test_resets_between_steps_count_and_are_told_apart() -> None:
    class LongReset(CountingWorld):
        max_steps = min_steps = 3

        def reset(self, **kwargs: Any) -> Any:
            time.sleep(0.004)
            return super().reset(**kwargs)

    found = measure(LongReset())
    assert found.reset_s >= 0.004
    assert found.step_s >= 0.001, "a third of a reset is part of each step"


# --- whatever goes wrong ---------------------------------------------------------------------


@pytest.mark.parametrize("when", ["construct", "reset", "step"])
@pytest.mark.parametrize("how", ["raise", "raise_unpicklable", "sys_exit", "os_exit", "sigsegv"])
def test_whatever_goes_wrong_is_a_sentence(
    how: Any, when: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    found = probe(functools.partial(Saboteur, how, when), TERMS)
    assert isinstance(found, Unprobed)
    assert "probe" in found.why
    assert "\n" not in found.why
    assert capfd.readouterr() == ("", ""), "the pool will say it"


@pytest.mark.parametrize("when", ["construct", "reset", "step"])
def test_a_probe_that_hangs_is_ended(when: Any) -> None:
    before = set(psutil.Process().children(recursive=True))
    found = probe(functools.partial(Saboteur, "hang_sleep", when), TERMS, deadline_s=0.5)
    assert found == Unprobed("the probe was not through after 0.5 s")
    _, alive = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, 20)
    assert alive == []


def test_what_cannot_travel_is_not_probed() -> None:
    lock = threading.Lock()
    found = probe(lambda: lock and CountingWorld(), TERMS)
    assert isinstance(found, Unprobed)


def test_what_is_no_environment_is_not_probed() -> None:
    assert isinstance(probe(dict, TERMS), Unprobed)


def test_what_a_probe_prints_is_not_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    found = probe(functools.partial(Saboteur, "print", "construct"), TERMS)
    assert isinstance(found, Probe)
    assert capfd.readouterr() == ("", "")


class Closes(CountingWorld):
    def __init__(self, mark: Path) -> None:
        super().__init__()
        self._mark = mark

    def close(self) -> None:
        self._mark.touch()


def test_the_probe_is_closed(tmp_path: Path) -> None:
    assert isinstance(probe(functools.partial(Closes, tmp_path / "closed"), TERMS), Probe)
    assert (tmp_path / "closed").exists()


# --- what can be believed --------------------------------------------------------------------

SOUND = Probe(1e-5, 1e-5, 0.1, 1e-5, 1e-3, 16, 1.0, None, 0.0, False)


@pytest.mark.parametrize(
    "change",
    [
        {"step_s": float("nan")},
        {"step_s": 0.0},
        {"step_s": -1.0},
        {"cpu_s": float("inf")},
        {"cpu_s": "1"},
        {"width": 0},
        {"uses_gpu": 1},
        {"render_modes": ["human"]},
        {"lock_free": "no"},
        {"memory_mb": None},
    ],
    ids=str,
)
def test_what_cannot_have_been_measured_is_not_believed(change: dict[str, Any]) -> None:
    assert is_plausible(SOUND)
    assert not is_plausible(replace(SOUND, **change))
