"""Do the drop-ins for Stable-Baselines3 give what its own give? Its `DummyVecEnv` is the oracle."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3.common import vec_env as theirs
from stable_baselines3.common.monitor import Monitor

from conftest import MakeVecEnv
from sb3_worlds import Bare, Listener, Odd, Pair, Plain, cart_pole, pendulum, tagged
from shoal import ClosedError, ConfigError, ContractError
from shoal.testing import CountingWorld
from shoal.vector.sb3 import DummyVecEnv, SubprocVecEnv
from trace_of import assert_same


def run(envs: Any, steps: int, seed: int = 7) -> list[Any]:
    """All that is returned, and what resets have said, over steps by actions of a fixed stream."""
    envs.seed(seed)
    envs.action_space.seed(seed)
    trace: list[Any] = [envs.reset(), copy.deepcopy(list(envs.reset_infos))]
    for _ in range(steps):
        actions = [envs.action_space.sample() for _ in range(envs.num_envs)]
        actions = actions if isinstance(actions[0], dict) else np.array(actions)
        trace.append([*envs.step(actions), copy.deepcopy(list(envs.reset_infos))])
    return trace


def timeless(trace: Any) -> Any:
    """How long an episode took, no two runs share."""
    if isinstance(trace, dict):
        return {key: timeless(value) for key, value in trace.items() if key != "t"}
    return [timeless(one) for one in trace] if isinstance(trace, (list, tuple)) else trace


def kinds(value: Any) -> Any:
    """The types of all that is in an info."""
    if isinstance(value, dict):
        return {key: kinds(one) for key, one in value.items()}
    return [kinds(one) for one in value] if isinstance(value, list) else type(value)


WORLDS: dict[str, list[Any]] = {
    "cart_pole": [cart_pole] * 4,
    "cart_pole_monitored": [lambda: Monitor(cart_pole())] * 4,
    "time_limit": [pendulum] * 4,
    "dict": tagged(CountingWorld, obs="dict", infos="mixed"),
    "tuple": tagged(Pair),
    "pixels": tagged(CountingWorld, obs="pixels", action="box", infos="numeric"),
    "discrete": tagged(CountingWorld, obs="discrete", infos="sparse"),
    "dict_actions": tagged(CountingWorld, action="dict"),
    "odd_infos": tagged(Odd),
    "without_options": tagged(Plain),
}


@pytest.mark.parametrize("world", WORLDS)
def test_steps_are_those_of_their_own(make_vec: MakeVecEnv, world: str) -> None:
    oracle = theirs.DummyVecEnv(WORLDS[world])
    expected = timeless(run(oracle, 70))
    oracle.close()
    got = timeless(run(make_vec(WORLDS[world]), 70))
    assert_same(got, expected)
    assert any(dones.any() for _, _, dones, *_ in expected[2:])
    for mine, original in zip(got[2:], expected[2:], strict=True):
        assert kinds(mine[3:]) == kinds(original[3:])


def test_spaces_are_those_of_one_environment(make_vec: MakeVecEnv) -> None:
    oracle, envs = theirs.DummyVecEnv(tagged(Pair)), make_vec(tagged(Pair))
    assert isinstance(envs, theirs.VecEnv)
    assert envs.num_envs == 4
    assert envs.observation_space == oracle.observation_space
    assert envs.action_space == oracle.action_space
    assert envs.metadata == oracle.metadata
    assert envs.unwrapped is envs


def test_a_reset_that_comes_with_the_episodes_end_is_not_seen_in_the_last_observation(
    make_vec: MakeVecEnv,
) -> None:
    """An environment may hand out one array over and over; here the copy is made in time."""
    got = run(make_vec(tagged(CountingWorld, reuse_buffer=True)), 60)
    plain = theirs.DummyVecEnv(tagged(CountingWorld))
    assert_same(got, run(plain, 60))


def test_what_was_returned_stays_as_it_was(make_vec: MakeVecEnv) -> None:
    envs = make_vec(tagged(CountingWorld, infos="numeric"))
    envs.seed(1)
    first = envs.reset()
    kept = [first.copy(), *copy.deepcopy(results := envs.step(np.zeros(4, np.int64)))]
    for _ in range(5):
        envs.step(np.ones(4, np.int64))
    assert_same([first, *results], kept)


# --- seeds and options ---------------------------------------------------------------------------


def test_seeds_are_those_of_the_next_reset_only(make_vec: MakeVecEnv) -> None:
    envs = make_vec(tagged(CountingWorld))
    assert envs.seed(5) == [5, 6, 7, 8]
    assert envs.reset()[:, 0].tolist() == [5, 6, 7, 8]
    assert envs.reset()[:, 3].tolist() == [1, 1, 1, 1]  # their second episode, not a new seed
    np.random.seed(3)
    drawn = envs.seed()
    np.random.seed(3)
    assert drawn == theirs.DummyVecEnv([CountingWorld]).seed() + [drawn[0] + k for k in (1, 2, 3)]


def test_options_are_those_of_the_next_reset_only(make_vec: MakeVecEnv) -> None:
    envs = make_vec(tagged(CountingWorld))
    given = [{"task": k} for k in range(4)]
    envs.set_options(given)
    given[3]["task"] = 99
    assert envs.reset()[:, 5].tolist() == [0, 1, 2, 3]
    assert envs.reset()[:, 5].tolist() == [0, 0, 0, 0]
    envs.set_options({"task": 4})
    assert envs.reset()[:, 5].tolist() == [4, 4, 4, 4]


# --- pictures ------------------------------------------------------------------------------------


def test_pictures_are_tiled_as_theirs(make_vec: MakeVecEnv) -> None:
    factories = tagged(CountingWorld, 3, render_mode="rgb_array")
    oracle, envs = theirs.DummyVecEnv(factories), make_vec(factories)
    for one in (oracle, envs):
        one.seed(2)
        one.reset()
        one.step(np.zeros(3, np.int64))
    assert envs.render_mode == "rgb_array"
    assert_same(list(envs.get_images()), list(oracle.get_images()))
    assert_same(envs.render(), oracle.render())


def test_without_pictures_there_is_a_warning(make_vec: MakeVecEnv) -> None:
    envs = make_vec(tagged(CountingWorld))
    assert envs.render_mode is None
    with pytest.warns(UserWarning, match="render_mode=None"):
        assert envs.get_images() == [None] * 4


def test_render_modes_must_agree(make_vec: MakeVecEnv) -> None:
    with pytest.raises(AssertionError, match="render_mode"):
        make_vec([CountingWorld, functools.partial(CountingWorld, render_mode="rgb_array")])


# --- a step in two halves, and the end -----------------------------------------------------------


def test_a_step_in_two_halves_is_a_step(make_vec: MakeVecEnv) -> None:
    envs, whole = make_vec(tagged(CountingWorld)), theirs.DummyVecEnv(tagged(CountingWorld))
    for one in (envs, whole):
        one.seed(4)
        one.reset()
    for k in range(40):
        actions = np.full(4, k % 7)
        envs.step_async(actions)
        assert_same(list(envs.step_wait()), list(whole.step(actions)))


def test_a_reset_forgets_a_step_that_was_begun(make_vec: MakeVecEnv) -> None:
    envs = make_vec(tagged(CountingWorld))
    envs.seed(4)
    envs.reset()
    envs.step_async(np.zeros(4, np.int64))
    assert envs.reset()[:, 4].tolist() == [0] * 4
    assert envs.step(np.zeros(4, np.int64))[0][:, 4].tolist() == [1] * 4


@pytest.mark.parametrize(
    ("what", "act"),
    [
        ("step_async", lambda envs: envs.step_async(np.zeros(4, np.int64))),
        ("step", lambda envs: envs.step(np.zeros(4, np.int64))),
        ("get_attr", lambda envs: envs.get_attr("tag")),
        ("set_attr", lambda envs: envs.set_attr("tag", 1)),
        ("env_method", lambda envs: envs.env_method("render")),
    ],
)
def test_nothing_else_is_done_while_processes_step(what: str, act: Callable[[Any], Any]) -> None:
    envs = SubprocVecEnv(tagged(CountingWorld))
    envs.seed(0)
    envs.reset()
    envs.step_async(np.zeros(4, np.int64))
    with pytest.raises(ContractError, match=f"{what}: a step is under way"):
        act(envs)
    assert envs.step_wait()[0][:, 4].tolist() == [1] * 4
    with pytest.raises(ContractError, match="Call step_async first"):
        envs.step_wait()
    envs.close()


def test_actions_are_counted(make_vec: MakeVecEnv) -> None:
    envs = make_vec(tagged(CountingWorld))
    envs.reset()
    with pytest.raises(ValueError, match="3 actions were given; expected 4"):
        envs.step(np.zeros(3, np.int64))


def test_actions_reach_environments_as_they_are(make_vec: MakeVecEnv) -> None:
    """A policy may give float64 for float32, or float32 bits for a MultiBinary."""
    envs = make_vec(tagged(Listener, 2))
    envs.reset()
    envs.step(np.array([[0.1], [0.2]]))
    assert envs.get_attr("heard") == ["float64", "float64"]
    envs.step([np.float32([0.1]), np.float16([0.2])])
    assert envs.get_attr("heard") == ["float32", "float16"]


def test_closing_twice_is_closing_once(make_vec: MakeVecEnv) -> None:
    envs = make_vec(tagged(CountingWorld))
    envs.reset()
    assert not envs.closed
    envs.close()
    envs.close()
    assert envs.closed
    with pytest.raises(ClosedError, match="step"):
        envs.step(np.zeros(4, np.int64))


# --- one or the other ----------------------------------------------------------------------------


def test_the_environments_themselves_are_at_hand_in_the_dummy() -> None:
    own = CountingWorld(3)
    envs = DummyVecEnv([lambda: own])
    assert envs.envs == [own]
    envs.reset()
    assert envs.envs[0].closes == 0
    envs.close()
    assert own.closes == 1


def test_one_environment_twice_is_refused() -> None:
    own = CountingWorld()
    for kind in (theirs.DummyVecEnv, DummyVecEnv):
        with pytest.raises(ValueError, match="the same"):
            kind([lambda: own] * 2)


def test_nested_observations_are_refused_by_the_dummy_as_theirs_refuses_them() -> None:
    for kind in (theirs.DummyVecEnv, DummyVecEnv):
        with pytest.raises(NotImplementedError, match="Nested"):
            kind([functools.partial(CountingWorld, obs="nested")])


def test_the_dummy_does_not_look_at_actions_that_are_left_over() -> None:
    for kind in (theirs.DummyVecEnv, DummyVecEnv):
        envs = kind(tagged(CountingWorld, 2))
        envs.reset()
        assert envs.step(np.zeros(3, np.int64))[0][:, 4].tolist() == [1, 1]
        envs.close()


@pytest.mark.parametrize("start_method", ["spawn", "fork", "forkserver"])
def test_start_methods_have_their_names(start_method: str) -> None:
    envs = SubprocVecEnv(tagged(CountingWorld, 2), start_method)
    assert envs.stats()["start_method"] == start_method
    assert envs.reset().shape == (2, 8)
    envs.close()


def test_an_unknown_start_method_is_refused_as_theirs_refuse_it() -> None:
    for kind in (theirs.SubprocVecEnv, SubprocVecEnv):
        with pytest.raises(ValueError, match="cannot find context for 'teleport'"):
            kind([CountingWorld], "teleport")


def test_several_environments_share_a_worker() -> None:
    envs = SubprocVecEnv(tagged(CountingWorld, 7), num_workers=2)
    stats = envs.stats()
    assert (stats["backend"], stats["num_workers"], stats["num_envs"]) == ("process", 2, 7)
    envs.close()


@pytest.mark.parametrize(
    ("env_fns", "given", "message"),
    [
        ([], {}, "list of environment factories is empty"),
        ([CountingWorld()], {}, "is an environment, not a way to make one"),
        ([CountingWorld], {"backend": "auto"}, "backend is 'auto'"),
        ([CountingWorld], {"on_failure": "weep"}, "on_failure is 'weep'"),
        ([CountingWorld], {"num_workers": 0}, "num_workers must be at least 1"),
        ([CountingWorld, Pair], {}, "observation space of env 1 differs"),
    ],
)
def test_what_cannot_be_is_refused(env_fns: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SubprocVecEnv(env_fns, **given)


def test_what_is_no_environment_is_refused_as_theirs_refuse_it(make_vec: MakeVecEnv) -> None:
    with pytest.raises(ValueError, match="not a Gymnasium"):
        theirs.DummyVecEnv([object])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="not a Gymnasium"):
        make_vec([object])


def test_an_environment_without_a_render_mode_is_warned_of_as_theirs(make_vec: MakeVecEnv) -> None:
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        theirs.DummyVecEnv([Bare])
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        make_vec([Bare])
    assert [str(one.message) for one in got] == [str(one.message) for one in expected]
