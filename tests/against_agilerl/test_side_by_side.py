"""AgileRL's vector environment and ours, step by step on the same seeds."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv as Theirs
from agilerl.vector.pz_vec_env import PettingZooVecEnv
from chase import Chase
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from mpe2 import simple_adversary_v3, simple_speaker_listener_v4, simple_spread_v3

from shoal.vector.agilerl import AsyncPettingZooVecEnv as Ours
from trace_of import assert_same

WORLDS: dict[str, Any] = {
    "spread": partial(simple_spread_v3.parallel_env, max_cycles=9),
    "adversary": partial(simple_adversary_v3.parallel_env, max_cycles=7, continuous_actions=True),
    "speaker": partial(simple_speaker_listener_v4.parallel_env, max_cycles=8),
    "deaths": Chase,
}
Pair = tuple[Theirs, Ours]


@pytest.fixture(params=WORLDS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both, with three environments of a kind."""
    factories = [WORLDS[request.param]] * 3
    theirs, ours = Theirs(factories), Ours(factories, absent="nan", num_workers=2)
    yield theirs, ours
    theirs.close()
    ours.close()


def chosen(envs: Any, t: int) -> dict[str, Any]:
    rng = np.random.default_rng(t)
    found: dict[str, Any] = {}
    for name in envs.agents:
        space = envs.single_action_space(name)
        if isinstance(space, spaces.Discrete):
            found[name] = rng.integers(0, space.n, envs.num_envs)
        else:
            found[name] = rng.random((envs.num_envs, *space.shape)).astype(space.dtype)
    return found


def assert_told(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Whatever their infos say, ours do."""
    for key, value in theirs.items():
        if isinstance(value, dict):
            assert_told(ours[key], value)
        else:
            assert_same(ours[key], value)


def test_both_tell_the_same(pair: Pair) -> None:
    theirs, ours = pair
    (wanted, said), (got, infos) = theirs.reset(seed=5), ours.reset(seed=5)
    assert_same(got, wanted)
    assert_told(infos, said)
    for t in range(40):
        *wanted, said = theirs.step(chosen(theirs, t))
        *got, infos = ours.step(chosen(ours, t))
        assert_same(got, wanted, f"step {t}")  # NaN and all, with their dtypes
        assert_told(infos, said)


def test_both_are_described_in_the_same_way(pair: Pair) -> None:
    theirs, ours = pair
    assert isinstance(ours, PettingZooVecEnv)
    for name in ("agents", "possible_agents", "num_agents", "num_envs", "metadata", "closed"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.render_mode == theirs.render_mode
    for agent in theirs.agents:
        for name in ("observation_space", "action_space"):
            for prefix in ("", "single_"):
                wanted = getattr(theirs, prefix + name)(agent)
                assert getattr(ours, prefix + name)(agent) == wanted


def test_both_call_and_set_in_the_same_way(pair: Pair) -> None:
    theirs, ours = pair
    for envs in (theirs, ours):
        envs.reset(seed=1)
        envs.set_attr("colour", ["red", "green", "blue"])
    assert ours.get_attr("colour") == theirs.get_attr("colour") == ("red", "green", "blue")
    assert ours.call("num_agents") == theirs.call("num_agents")
    assert_same(ours.render(), theirs.render())


def mistakes() -> dict[str, Any]:
    def pending(first: str, then: str) -> Any:
        def make(envs: Any) -> None:
            begin(envs, first)
            begin(envs, then)

        return make

    def begin(envs: Any, kind: str) -> None:
        if kind == "reset":
            envs.reset_async(seed=0)
        elif kind == "step":
            envs.step_async([dict.fromkeys(envs.agents, 0)] * envs.num_envs)
        else:
            envs.call_async("num_agents")

    def wait(envs: Any, kind: str) -> None:
        getattr(envs, f"{kind}_wait")()

    kinds = ("reset", "step", "call")
    found = {f"{a}, {b}": pending(a, b) for a in kinds for b in kinds}
    found |= {f"{kind}_wait": partial(wait, kind=kind) for kind in kinds}
    return found | {"values": lambda envs: envs.set_attr("colour", ["red"])}


@pytest.mark.parametrize("mistake", mistakes())
def test_both_complain_in_the_same_words(mistake: str) -> None:
    said = []
    for kind in (Theirs, Ours):
        envs = kind([WORLDS["spread"]] * 2)
        envs.reset(seed=0)
        with pytest.raises((AlreadyPendingCallError, NoAsyncCallError, ValueError)) as caught:
            mistakes()[mistake](envs)
        said.append((caught.type, str(caught.value)))
        envs.close(terminate=True)
    (theirs, wanted), (ours, got) = said
    assert issubclass(ours, theirs)
    assert got == wanted


def test_both_are_closed_in_the_same_way() -> None:
    said = []
    for kind in (Theirs, Ours):
        envs = kind([WORLDS["spread"]])
        envs.close()
        envs.close()
        with pytest.raises(ClosedEnvironmentError) as caught:
            envs.reset()
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_both_time_out_with_the_same_error() -> None:
    for kind in (Theirs, Ours):
        envs = kind([partial(Chase, slow_s=1.0)])
        envs.call_async("render")
        with pytest.raises(multiprocessing.TimeoutError):
            envs.call_wait(timeout=0.01)
        envs.close(terminate=True)
