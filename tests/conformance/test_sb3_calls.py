"""Are attributes and methods of single environments reached as by Stable-Baselines3's own?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from stable_baselines3.common import vec_env as theirs
from stable_baselines3.common.monitor import Monitor

from conftest import MakeVecEnv
from sb3_worlds import Line, Outer, Reluctant, Talkative, tagged, wrapped
from shoal.testing import CountingWorld
from shoal.vector.sb3 import SubprocVecEnv


@pytest.mark.parametrize(
    "indices", [None, 0, 2, -1, [1, 3], (0, -1), range(2), [2, 2], np.array([3])]
)
def test_attributes_and_methods_are_theirs(make_vec: MakeVecEnv, indices: Any) -> None:
    oracle, envs = theirs.DummyVecEnv(tagged(wrapped)), make_vec(tagged(wrapped))
    for one in (oracle, envs):
        one.set_attr("label", "mine", indices=[1, -1])
        one.set_attr("brand_new", "yes", indices=indices)
    for name in ("goal", "tag", "label", "render_mode", "metadata"):
        assert envs.get_attr(name, indices) == oracle.get_attr(name, indices)
    assert envs.get_attr("brand_new", indices) == oracle.get_attr("brand_new", indices)
    expected = oracle.env_method("add", 3, factor=2, indices=indices)
    assert envs.env_method("add", 3, factor=2, indices=indices) == expected
    for kind in (Monitor, Outer, gymnasium.Wrapper, gymnasium.wrappers.TimeLimit):
        assert envs.env_is_wrapped(kind, indices) == oracle.env_is_wrapped(kind, indices)


def test_whether_there_is_an_attribute_can_be_asked_of_what_cannot_travel(
    make_vec: MakeVecEnv,
) -> None:
    oracle, envs = theirs.DummyVecEnv(tagged(wrapped)), make_vec(tagged(wrapped))
    envs.set_attr("of_one", 1, indices=0)
    oracle.set_attr("of_one", 1, indices=0)
    for name in ("goal", "unpicklable", "label", "missing", "of_one"):
        assert envs.has_attr(name) == oracle.has_attr(name), name


def test_a_class_is_not_imported_only_to_be_looked_for() -> None:
    """Which would bring torch into every worker, as soon as a policy is evaluated."""
    envs = SubprocVecEnv(tagged(Talkative, 2))
    assert envs.env_is_wrapped(Monitor) == [False, False]
    assert envs.env_method("has_imported", "torch") == [False, False]
    envs.close()


def test_a_method_is_an_attribute_too(make_vec: MakeVecEnv) -> None:
    """`get_attr` calls nothing, and what it gives can be called."""
    (compute_reward,) = make_vec([Line] * 4).get_attr("compute_reward", indices=3)
    assert compute_reward(np.zeros(1), np.ones(1), {}) == -1.0


def test_an_attribute_is_set_where_it_is(make_vec: MakeVecEnv) -> None:
    envs = make_vec(tagged(wrapped))
    envs.set_attr("goal", 100)
    assert envs.env_method("add", 1) == [101] * 4


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda envs: envs.get_attr("missing"), AttributeError),
        (lambda envs: envs.env_method("missing"), AttributeError),
        (lambda envs: envs.env_method("goal"), TypeError),
        (lambda envs: envs.env_method("fail", indices=2), KeyError),
        (lambda envs: envs.get_attr("goal", indices=4), IndexError),
    ],
)
def test_a_call_that_fails_raises_what_theirs_raises_and_harms_nobody(
    make_vec: MakeVecEnv, act: Callable[[Any], Any], error: type[Exception]
) -> None:
    envs = make_vec(tagged(Talkative))
    with pytest.raises(error) as theirs_was:
        act(theirs.DummyVecEnv(tagged(Talkative)))
    with pytest.raises(error) as ours_was:
        act(envs)
    if error is KeyError:
        assert str(ours_was.value) == str(theirs_was.value)
    assert envs.reset().shape == (4, 8)


def test_what_an_environment_raises_is_raised(make_vec: MakeVecEnv) -> None:
    envs = make_vec([CountingWorld, functools.partial(Reluctant, 1)])
    envs.seed(0)
    envs.reset()
    with pytest.raises(ZeroDivisionError, match="tag 1"):
        for _ in range(3):
            envs.step(np.zeros(2, np.int64))
    assert envs.reset().shape == (2, 8)
