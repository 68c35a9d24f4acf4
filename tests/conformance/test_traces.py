"""Do all backends behave as one? The same worlds, traces compared bit for bit."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import pytest

import shoal
from conftest import Make
from shoal.testing import CountingWorld
from shoal.vector.make import as_mode
from trace_of import assert_same, run

STEPS = 300
NUM_ENVS = 5

WORLDS: dict[str, dict[str, Any]] = {
    "vector": {"obs": "vector", "infos": "numeric"},
    "reused": {"obs": "dict", "infos": "sparse", "reuse_buffer": True, "action": "box"},
    "nested": {"obs": "nested", "infos": "mixed", "action": "dict"},
    "mixed": {"obs": "mixed", "infos": "mixed", "action": "multidiscrete"},
    "text": {"obs": "text", "infos": "none"},
    "pixels": {"obs": "pixels", "reuse_buffer": True},
    "discrete": {"obs": "discrete", "infos": "sparse"},
}


def factories(world: str) -> list[Any]:
    return [functools.partial(CountingWorld, tag, **WORLDS[world]) for tag in range(NUM_ENVS)]


@functools.cache
def serial_trace(world: str, mode: str) -> list[Any]:
    with shoal.make(factories(world), backend="serial", autoreset=mode) as envs:
        return run(envs, STEPS, mode=mode)


@pytest.mark.parametrize("world", WORLDS)
def test_every_backend_gives_the_trace_of_the_serial_one(make: Make, mode: str, world: str) -> None:
    envs = make(factories(world), autoreset=mode)
    assert_same(run(envs, STEPS, mode=mode), serial_trace(world, mode))


@pytest.mark.parametrize("world", WORLDS)
def test_serial_gives_the_trace_of_gymnasiums_own_plain_loop(mode: str, world: str) -> None:
    # Gymnasium hands out a reused buffer as the last observation; ours must give what a world
    # that does not reuse its buffer gives there.
    honest = [
        functools.partial(CountingWorld, tag, **(WORLDS[world] | {"reuse_buffer": False}))
        for tag in range(NUM_ENVS)
    ]
    theirs = gymnasium.vector.SyncVectorEnv(honest, autoreset_mode=as_mode(mode))
    expected = run(theirs, STEPS, mode=mode)
    theirs.close()
    assert_same(serial_trace(world, mode), expected)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_gymnasiums_environments_give_the_trace_of_gymnasiums_own_loop(
    make: Make, mode: str, env_id: str
) -> None:
    theirs = gymnasium.make_vec(
        env_id, 3, vectorization_mode="sync", vector_kwargs={"autoreset_mode": as_mode(mode)}
    )
    expected = run(theirs, 120, mode=mode)
    theirs.close()
    assert_same(run(make(env_id, 3, autoreset=mode), 120, mode=mode), expected)


def test_episodes_of_the_trace_are_uneven_and_end_both_ways() -> None:
    """The oracle itself is worth something: many ends, of both kinds, at different times."""
    steps = [one for one in serial_trace("vector", "same_step") if len(one) == 5]
    terminations = sum(int(step[2].sum()) for step in steps)
    truncations = sum(int(step[3].sum()) for step in steps)
    apart = sum(0 < int((step[2] | step[3]).sum()) < NUM_ENVS for step in steps)
    assert terminations > 20
    assert truncations > 20
    assert apart > 50
