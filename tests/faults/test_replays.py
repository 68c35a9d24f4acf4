"""F1b: with replay, a run in which workers are killed equals an undisturbed one, bit for bit."""

from __future__ import annotations

import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import shoal
from faults.conftest import FULL, Record, Scale
from faults.recovering import infos_of, kill_worker, random_kills, worlds
from shoal import Faults
from shoal.testing import CountingWorld
from trace_of import assert_same

Disturb = Callable[[shoal.VectorEnv, int], None]


def make(env: Any, *num_envs: int, **kwargs: Any) -> shoal.VectorEnv:
    where = {"backend": "process", "num_workers": 3, "on_failure": "replay"}
    return shoal.make(env, *num_envs, **where | kwargs)


def cheetah() -> Any:
    return gymnasium.make("HalfCheetah-v5", max_episode_steps=60)


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


WORLDS: dict[str, list[Any]] = {
    "CartPole": [cartpole] * 6,
    "Dict": worlds(6, obs="dict", action="dict", infos="mixed", history=False),
    "pixels": worlds(6, obs="pixels", reuse_buffer=True, infos="sparse", history=False),
    "objects": worlds(6, obs="mixed", action="box", infos="numeric", history=False),
}


def lockstep(envs: shoal.VectorEnv, mode: str, steps: int, disturb: Disturb) -> list[Any]:
    """A run of all environments together, with options, planned resets and attributes."""
    envs.action_space.seed(3)
    trace: list[Any] = [envs.reset(seed=9)]
    for turn in range(steps):
        disturb(envs, turn)
        _intervene(envs, turn)
        trace.append(envs.step(envs.action_space.sample()))
        ended = trace[-1][2] | trace[-1][3]
        if mode == "disabled" and ended.any():
            trace.append(envs.reset(options={"reset_mask": ended, "task": turn}))
    return trace


def sending(envs: shoal.VectorEnv, mode: str, steps: int, disturb: Disturb) -> list[Any]:
    """First come, first served; what each environment saw, in its own order."""
    count, space = envs.num_envs, envs.single_action_space
    space.seed(3)
    actions = [[space.sample() for _ in range(steps)] for _ in range(count)]
    taken = [0] * count
    streams: list[list[Any]] = [[] for _ in range(count)]
    draw = random.Random(0)
    envs.reset(seed=9)
    idle = set(range(count))
    turn = 0
    while min(taken) < steps:
        disturb(envs, turn)
        turn += 1
        willing = sorted(i for i in idle if taken[i] < steps)
        sent = [i for i in willing if draw.random() < 0.8]
        if not sent and len(idle) == count:
            sent = willing
        if sent:
            envs.send(_batched(space, [actions[i][taken[i]] for i in sent]), sent)
            idle.difference_update(sent)
        ids = _receive(envs, draw.randint(1, count - len(idle)), streams)
        for i in ids:
            taken[i] += 1
            ended = streams[i][-1][2] or streams[i][-1][3]
            if mode == "disabled" and ended:
                observations, infos = envs.reset_envs([i], options={"task": taken[i]})
                streams[i].append((_row(observations, 0), infos_of(infos, [0])))
        idle.update(ids)
    if len(idle) < count:
        _receive(envs, count - len(idle), streams)
    return streams


def _receive(envs: shoal.VectorEnv, at_least: int, streams: list[list[Any]]) -> list[int]:
    batch = envs.recv(at_least)
    ids: list[int] = batch.env_ids.tolist()
    numbers = zip(batch.rewards, batch.terminations, batch.truncations, strict=True)
    infos = infos_of(batch.infos, list(range(len(ids))))
    for k, (i, three) in enumerate(zip(ids, numbers, strict=True)):
        streams[i].append((_row(batch.observations, k), *(x.item() for x in three), infos[k]))
    return ids


def _row(observations: Any, row: int) -> Any:
    if isinstance(observations, dict):
        return {key: _row(value, row) for key, value in observations.items()}
    return observations[row]


def _batched(space: Any, actions: list[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _batched(sub, [one[key] for one in actions]) for key, sub in space.items()}
    return np.stack(actions) if isinstance(actions[0], np.ndarray) else np.array(actions)


def _intervene(envs: shoal.VectorEnv, turn: int) -> None:
    """What belongs to the record beside actions."""
    if turn % 17 == 5:
        envs.set_next_reset([1, 4], options=[{"task": turn}, {"task": turn + 1}])
    if turn % 23 == 9:
        envs.set_next_reset([2], seeds=[1000 + turn])
    if turn % 11 == 3:
        envs.set_attr("bonus", [float(turn + i) for i in range(3)], env_ids=[0, 3, 5])


def undisturbed(envs: shoal.VectorEnv, turn: int) -> None:
    pass


def run_twice(
    factories: list[Any], way: Any, mode: str, kills: int, every: int, within_s: float = 0.004
) -> dict[str, Any]:
    """A run without and one with kills; both must be the same. The stats of the second."""
    steps = kills * every
    with make(factories, autoreset=mode) as envs:
        expected = way(envs, mode, steps, undisturbed)
    with make(factories, autoreset=mode) as envs, random_kills(envs, kills, within_s) as kill_one:
        got = way(envs, mode, steps, lambda _, turn: kill_one() if turn % every == 1 else None)
        stats = envs.stats()
    assert_same(got, expected)
    return stats


@pytest.mark.parametrize("way", [lockstep, sending])
@pytest.mark.parametrize("world", WORLDS)
def test_a_run_with_kills_equals_an_undisturbed_one(
    world: str, mode: str, way: Any, scale: Scale, figure: Record
) -> None:
    kills = scale(short=4, full=100)
    stats = run_twice(WORLDS[world], way, mode, kills, every=12)
    _check_replayed(stats)
    figure("F1b", f"bit-identical, {world}", f"{kills} kills")


def _check_replayed(stats: dict[str, Any]) -> None:
    assert {one["outcome"] for one in stats["incidents"]} == {"replayed"}
    assert stats["restarts"] == 0
    assert stats["replays"] >= stats["num_incidents"]


def test_a_mujoco_run_with_kills_equals_an_undisturbed_one(
    mode: str, scale: Scale, figure: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)  # where MuJoCo writes its log
    if not FULL and mode != "next_step":
        pytest.skip("one mode is enough for a short run")
    kills = scale(short=2, full=100)
    stats = run_twice([cheetah] * 6, lockstep, mode, kills, every=25)
    _check_replayed(stats)
    figure("F1b", "bit-identical, HalfCheetah", f"{kills} kills")


class Scribe(gymnasium.Env[Any, Any]):
    """Hears words and maps, and tells a digest of all that it has heard: nothing has a row."""

    def __init__(self, tag: int) -> None:
        node = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Dict(
            {"word": spaces.Text(8), "map": spaces.Graph(node, None), "loud": spaces.Discrete(3)}
        )
        self.observation_space = spaces.Dict(
            {"digest": spaces.Text(64, charset="0123456789abcdef"), "map": spaces.Graph(node, None)}
        )
        self.tag = tag

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._heard = hashlib.sha256(str(options).encode())
        self._left = int(self.np_random.integers(3, 15))
        return self._tell(spaces.GraphInstance(np.ones((1, 2), np.float32), None, None))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._heard.update(f"{action['word']} {int(action['loud'])}".encode())
        self._heard.update(action["map"].nodes.tobytes())
        self._left -= 1
        observation, info = self._tell(action["map"])
        return observation, float(self.np_random.random()), self._left == 0, False, info

    def _tell(self, graph: Any) -> tuple[Any, dict[str, Any]]:
        digest = self._heard.hexdigest()
        return {"digest": digest, "map": graph}, {"short": digest[:4], "tag": self.tag}


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_actions_and_observations_without_rows_are_replayed(mode: str) -> None:
    _check_replayed(run_twice(worlds(6, Scribe), lockstep, mode, kills=4, every=9))


class Marathon(CountingWorld):
    """Long episodes of slow steps, so that a replay takes a while."""

    min_steps, max_steps = 300, 400


def test_a_kill_during_a_replay_is_recovered_from(scale: Scale, figure: Record) -> None:
    tries = scale(short=1, full=10)
    factories = worlds(6, Marathon, history=False, work_s=0.001, infos="numeric")
    with make(factories) as envs:
        expected = lockstep(envs, "next_step", 40 * tries, undisturbed)
    killers: list[threading.Thread] = []

    def kill_twice(envs: shoal.VectorEnv, turn: int) -> None:
        if turn % 40 == 30:
            kill_worker(envs, 1)
            killers.append(threading.Thread(target=_kill_in_replay, args=(envs, 1, turn // 2)))
            killers[-1].start()

    with make(factories) as envs:
        got = lockstep(envs, "next_step", 40 * tries, kill_twice)
        stats = envs.stats()
    for killer in killers:
        killer.join()
    assert_same(got, expected)
    phases = [one["phase"] for one in stats["incidents"]]
    assert phases.count("idle") == tries
    hits = phases.count("replay")  # a replay may be over before it is hit
    assert tries // 2 <= hits <= tries
    _check_replayed(stats)
    figure("F1b", "killed once more during the replay", f"{hits} times, bit-identical")


def _kill_in_replay(envs: shoal.VectorEnv, number: int, at_step: int) -> None:
    """Kill a worker once its replay has come so far."""
    deadline = time.monotonic() + 20.0
    while time.monotonic() < deadline:
        place = envs._pool.workers[number].at()
        if place.phase == "replay" and place.step >= at_step:
            kill_worker(envs, number)
            return
        time.sleep(0.0005)


def test_runs_without_seeds_are_replayed_too(mode: str) -> None:
    with make(worlds(6, history=False), autoreset=mode) as envs:
        envs.reset()
        before = envs.call("record")
        for turn in range(40):
            if turn % 8 == 4:
                kill_worker(envs, turn % 3)
                assert envs.call("record") == before
            _, _, terminations, truncations, infos = envs.step(np.full(6, turn % 7))
            assert "restarted" not in infos
            ended = terminations | truncations
            if mode == "disabled" and ended.any():
                envs.reset(options={"reset_mask": ended})
            before = envs.call("record")
        _check_replayed(envs.stats())


class Eccentric(CountingWorld):
    """Has a generator of another kind, whose state does not fit into a row."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.np_random = np.random.Generator(np.random.MT19937(seed))
        return super().reset(options=options)


@pytest.mark.parametrize("way", [lockstep, sending])
def test_other_generators_are_put_back_too(mode: str, way: Any) -> None:
    _check_replayed(run_twice(worlds(6, Eccentric, history=False), way, mode, 3, every=12))


# --- where a replay is not possible ----------------------------------------------------------


def steps_with_kills(envs: shoal.VectorEnv, kills: int, every: int) -> int:
    """How often a loss was told."""
    envs.reset(seed=0)
    losses = 0
    for turn in range(kills * every):
        if turn % every == every - 1:
            kill_worker(envs, 1)
        infos = envs.step(np.zeros(envs.num_envs, dtype=np.int64))[4]
        losses += int(np.sum(infos.get("restarted", 0)))
    return losses


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was said about replays; that something was rebuilt is said each time."""
    texts = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    return [text for text in texts if "could not be replayed" in text]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_world_with_a_history_is_restarted_with_one_warning(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    with make(worlds(6), autoreset=mode) as envs:
        losses = steps_with_kills(envs, kills=4, every=25)  # in later episodes its seed has gone
        stats = envs.stats()
    assert losses > 0
    assert stats["restarts"] >= losses
    assert {one["outcome"] for one in stats["incidents"]} == {"restarted"}
    (text,) = warnings_of(caplog)
    assert "could not be replayed" in text


def test_an_episode_longer_than_its_record_is_restarted_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    factories = worlds(6, Marathon, history=False)
    with make(factories, faults=Faults(replay_limit_steps=20)) as envs:
        losses = steps_with_kills(envs, kills=2, every=15)
        stats = envs.stats()
    # After 14 steps it is replayed; after 29 it is too late for that.
    assert [one["outcome"] for one in stats["incidents"]] == ["replayed", "restarted"]
    assert losses == 2
    (text,) = warnings_of(caplog)
    assert "replay_limit_steps" in text


def test_nothing_is_replayed_where_nothing_is_recorded(caplog: pytest.LogCaptureFixture) -> None:
    with make(worlds(6, history=False), faults=Faults(replay_limit_steps=0)) as envs:
        assert steps_with_kills(envs, kills=2, every=4) == 4
        assert envs.stats()["replays"] == 0
    assert len(warnings_of(caplog)) == 1


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_vector_environments_are_restarted_with_one_warning(
    mode: AutoresetMode, caplog: pytest.LogCaptureFixture
) -> None:
    def pair() -> Any:
        return SyncVectorEnv([cartpole, cartpole], autoreset_mode=mode)

    with make(pair, 6, autoreset=mode) as envs:
        assert steps_with_kills(envs, kills=2, every=4) == 4
        assert {one["outcome"] for one in envs.stats()["incidents"]} == {"restarted"}
    (text,) = warnings_of(caplog)
    assert "vector environment" in text


def test_an_environment_changed_by_a_call_is_restarted_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Listening(CountingWorld):
        def say(self, action: int) -> None:
            self.step(action)  # an action that nobody recorded

    with make(worlds(6, Listening, history=False)) as envs:
        envs.reset(seed=0)
        envs.call("say", 3, env_ids=[2])
        envs.step(np.zeros(6, dtype=np.int64))
        kill_worker(envs, 1)
        infos = envs.step(np.zeros(6, dtype=np.int64))[4]
        # Its mate is replayed.
        assert infos["restarted"].tolist() == [False, False, True, False, False, False]
        assert envs.stats()["replays"] == 1
    assert len(warnings_of(caplog)) == 1


def test_a_restart_that_waits_for_its_reset_is_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with make(worlds(6, Marathon, history=False), faults=Faults(replay_limit_steps=3)) as envs:
        envs.reset(seed=0)
        for _ in range(5):
            envs.step(np.zeros(6, dtype=np.int64))
        kill_worker(envs, 1)
        assert envs.step(np.zeros(6, dtype=np.int64))[4]["restarted"].sum() == 2
        caplog.clear()
        envs._pool.supervisor._has_warned = False
        kill_worker(envs, 1)  # with its reset still to come, there is nothing to be lost
        assert "restarted" not in envs.step(np.zeros(6, dtype=np.int64))[4]
    assert warnings_of(caplog) == []


class Raising(CountingWorld):
    """Draws a number, and then raises for action 3."""

    def step(self, action: int) -> Any:
        if action == 3:
            self.np_random.random()
            raise ValueError("three")
        return super().step(action)


def test_an_environment_whose_step_has_raised_is_not_replayed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with make(worlds(3, Raising, history=False), num_workers=1) as envs:
        envs.reset(seed=0)
        with pytest.raises(shoal.EnvRaised):
            envs.step(np.array([0, 3, 0]))
        envs.step(np.zeros(3, dtype=np.int64))
        kill_worker(envs, 0)
        infos = envs.step(np.zeros(3, dtype=np.int64))[4]
        assert infos["restarted"].tolist() == [False, True, False]
        assert envs.stats()["replays"] == 2
    (text,) = warnings_of(caplog)
    assert "was interrupted" in text
