"""F12: bad data is caught where it arises; what Gymnasium accepts is accepted."""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

from conftest import Make, Setting
from faults.conftest import Record
from shoal import ContractError, Faults
from shoal.testing import CountingWorld
from shoal.testing.saboteurs import Saboteur

NUM_ENVS, CULPRIT = 6, 4
FEW = [Setting("serial", 1), Setting("process", 2)]
FIGURE = ("F12", "bad data", "caught with environment, key, expected, got")

# --- observations that must not pass --------------------------------------------------------

BAD = {
    "wrong_shape": r"observation has shape \(9,\); expected \(8,\) of Box",
    "broadcastable_shape": r"observation has shape \(1,\); expected \(8,\) of Box",
    "none_obs": r"observation is None; expected Box",
    "lossy_cast": r"observation has dtype float64, which int64 of Box.* without loss: got array",
}
BAD_KEYS = {
    "missing_key": r"expected \['bytes', .*, got \[.*missing \['record'\], too many \[\]",
    "extra_key": r"expected \['bytes', .*, got \[.*missing \[\], too many \['surprise'\]",
}


def crew(how: Any, when: Any) -> list[Any]:
    good = [functools.partial(CountingWorld, tag) for tag in range(NUM_ENVS)]
    good[CULPRIT] = functools.partial(Saboteur, how, when, tag=CULPRIT)
    return good


def dict_world(how: Any) -> Any:
    return Saboteur(how, "step", env=CountingWorld(obs="dict"))


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("when", ["reset", "step"])
def test_a_bad_observation_is_told_with_env_key_expected_and_got(
    make: Make, how: str, when: str, figure: Record
) -> None:
    with pytest.raises(ContractError, match=rf"env {CULPRIT}, in {when} \(.*: {BAD[how]}"):
        envs = make(crew(how, when))
        envs.reset(seed=0)
        envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
    figure(*FIGURE)


@pytest.mark.parametrize("how", BAD_KEYS)
def test_wrong_keys_are_named(make: Make, how: str, figure: Record) -> None:
    envs = make(functools.partial(dict_world, how), 3)
    envs.reset(seed=0)
    with pytest.raises(ContractError, match=rf"env 0, in step .*wrong keys: {BAD_KEYS[how]}"):
        envs.step(np.zeros(3, dtype=np.int64))
    figure(*FIGURE)


@pytest.mark.parametrize("how", ["nan", "inf"])
def test_what_is_not_finite_is_caught_when_asked(make: Make, how: str, figure: Record) -> None:
    relaxed = make(functools.partial(dict_world, how), 3)
    relaxed.reset(seed=0)
    relaxed.step(np.zeros(3, dtype=np.int64))
    strict = make(functools.partial(dict_world, how), 3, faults=Faults(check_finite=True))
    strict.reset(seed=0)
    text = rf"env 0, in step .*: observation\['half'\] is not finite: array\(\[{how}, "
    with pytest.raises(ContractError, match=text):
        strict.step(np.zeros(3, dtype=np.int64))
    figure(*FIGURE)


class Offering(gymnasium.Env[Any, Any]):
    """Begins with a sample of its space and then observes whatever it was given."""

    def __init__(self, space: Space[Any], offer: Any) -> None:
        self.observation_space, self.action_space = space, Discrete(2)
        self.offer = offer

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.observation_space.seed(0)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.offer, 0.0, False, False, {}


PAIR = Dict({"arm": Dict({"angle": Box(-1, 1, (2,))}), "at": Tuple((Discrete(3), Box(0, 9, (1,))))})
GOOD_PAIR = {"arm": {"angle": np.zeros(2, np.float32)}, "at": (1, np.zeros(1, np.float32))}

DEEP = {
    "shape deep inside": (
        GOOD_PAIR | {"arm": {"angle": np.zeros((2, 1), np.float32)}},
        "observation['arm']['angle'] has shape (2, 1); expected (2,) of Box",
    ),
    "key deep inside": (
        GOOD_PAIR | {"arm": {"elbow": np.zeros(2, np.float32)}},
        "observation['arm'] has the wrong keys: expected ['angle'], got ['elbow']",
    ),
    "None deep inside": (
        GOOD_PAIR | {"arm": {"angle": None}},
        "observation['arm']['angle'] is None; expected Box",
    ),
    "no dict": (
        GOOD_PAIR | {"arm": np.zeros(2, np.float32)},
        "observation['arm'] is array([0., 0.], dtype=float32); expected a dict with ['angle']",
    ),
    "a tuple too long": (
        GOOD_PAIR | {"at": (1, np.zeros(1, np.float32), 2)},
        "observation['at'] is (1, array([0.], dtype=float32), 2); expected a tuple of 2",
    ),
    "half a number": (
        GOOD_PAIR | {"at": (1.5, np.zeros(1, np.float32))},
        "observation['at'][0] has dtype float64, which int64 of Discrete(3) cannot hold without",
    ),
    "a word": (
        GOOD_PAIR | {"at": (1, np.array(["left"]))},
        "observation['at'][1] has dtype <U4, which float32 of Box",
    ),
    "rows of different length": (
        GOOD_PAIR | {"arm": {"angle": [[1.0], [1.0, 2.0]]}},
        "observation['arm']['angle'] is not an array",
    ),
}


@pytest.mark.parametrize("setting", FEW, ids=str, indirect=True)
@pytest.mark.parametrize("what", DEEP)
def test_the_key_is_named_however_deep(make: Make, what: str, figure: Record) -> None:
    offer, text = DEEP[what]
    good = functools.partial(Offering, PAIR, GOOD_PAIR)
    envs = make([good, good, functools.partial(Offering, PAIR, offer)])
    envs.reset(seed=0)
    with pytest.raises(ContractError, match=rf"env 2, in step .*: {re.escape(text)}"):
        envs.step(np.zeros(3, dtype=np.int64))
    figure(*FIGURE)


# --- actions that must not pass -------------------------------------------------------------

MOVE = Dict({"move": Discrete(3, start=1), "flags": MultiBinary(2)})

BAD_ACTIONS: dict[str, tuple[Space[Any], Any, str]] = {
    "too high": (Discrete(5), [0, 5, 0], "action of env 1 is 5, outside its space Discrete(5)"),
    "too low": (Discrete(5), [0, 0, -1], "action of env 2 is -1, outside its space Discrete(5)"),
    "below its start": (
        Discrete(5, start=2),
        [2, 1, 2],
        "action of env 1 is 1, outside its space Discrete(5, start=2)",
    ),
    "one of several": (
        MultiDiscrete([3, 4]),
        [[0, 0], [2, 3], [0, 4]],
        "action of env 2 is [0, 4], outside its space MultiDiscrete([3 4])",
    ),
    "neither 0 nor 1": (
        MultiBinary(2),
        [[0, 1], [2, 0], [0, 0]],
        "action of env 1 is [2, 0], outside its space MultiBinary(2)",
    ),
    "inside a dict": (
        MOVE,
        {"move": [1, 4, 1], "flags": np.zeros((3, 2), np.int8)},
        "action['move'] of env 1 is 4, outside its space Discrete(3, start=1)",
    ),
    "half a number": (
        Discrete(5),
        [0, 1.5, 0],
        "actions has dtype float64, which int64 of Discrete(5) cannot hold without loss: got",
    ),
    "not a number": (Discrete(5), [0, np.nan, 0], "actions has dtype float64, which int64 of"),
    "too few": (Discrete(5), [0, 0], "actions holds 2 actions; expected 3, one per environment"),
    "one for all": (Discrete(5), 0, "actions is 0; expected one action for each of 3"),
    "broadcastable": (
        Box(-1, 1, (2,)),
        np.zeros((3, 1), np.float32),
        "actions has shape (3, 1); expected (3, 2) of Box",
    ),
    "a missing key": (
        MOVE,
        {"move": [1, 1, 1]},
        "actions has the wrong keys: expected ['flags', 'move'], got ['move'] (missing ['flags']",
    ),
}


class Acting(CountingWorld):
    def __init__(self, space: Space[Any]) -> None:
        super().__init__()
        self.action_space, self.steps = space, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._encode(self._record), 0.0, False, False, {}


@pytest.mark.parametrize("setting", FEW, ids=str, indirect=True)
@pytest.mark.parametrize("what", BAD_ACTIONS)
def test_a_bad_action_is_refused_and_nobody_steps(make: Make, what: str, figure: Record) -> None:
    space, actions, text = BAD_ACTIONS[what]
    envs = make(functools.partial(Acting, space), 3)
    envs.reset(seed=0)
    with pytest.raises(ContractError, match=re.escape(text)):
        envs.step(actions)
    with pytest.raises(ContractError, match=re.escape(text)):
        envs.send(actions)
    assert envs.get_attr("steps") == (0, 0, 0)
    envs.step(envs.action_space.sample())
    figure(*FIGURE)


# --- what Gymnasium accepts -----------------------------------------------------------------


class Labelled(np.ndarray):
    """An array of a class of its own."""


UNIT, FLAT = Box(0, 1, (2,), np.float32), Box(-np.inf, np.inf, (), np.float32)

ACCEPTED: dict[str, tuple[Space[Any], Any]] = {
    "out of bounds": (UNIT, np.array([5, -5], np.float32)),
    "float64 for float32": (UNIT, np.array([0.1, 0.2])),
    "float32 for float64": (Box(0, 1, (2,), np.float64), np.array([0.1, 0.2], np.float32)),
    "float16 for float32": (UNIT, np.array([0.1, 0.2], np.float16)),
    "whole numbers for float32": (UNIT, np.array([0, 1])),
    "a list": (UNIT, [0.5, 0.25]),
    "a tuple": (UNIT, (0.5, 0.25)),
    "NaN and Inf": (UNIT, np.array([np.nan, np.inf], np.float32)),
    "a plain float": (FLAT, 0.5),
    "a NumPy scalar": (FLAT, np.float32(0.5)),
    "an array of no dimension": (FLAT, np.array(0.5, np.float32)),
    "every second of an array": (UNIT, np.arange(4, dtype=np.float32)[::2]),
    "a subclass of an array": (UNIT, np.array([0.5, 0.25], np.float32).view(Labelled)),
    "an int for Discrete": (Discrete(5), 3),
    "an int32 for Discrete": (Discrete(5), np.int32(3)),
    "out of a Discrete": (Discrete(5), 99),
    "bools for MultiBinary": (MultiBinary(2), np.array([True, False])),
    "a list for MultiBinary": (MultiBinary(2), [1, 0]),
    "uint8 for MultiDiscrete": (MultiDiscrete([3, 4]), np.array([1, 2], np.uint8)),
    "a Dict in another order": (PAIR, OrderedDict(reversed(GOOD_PAIR.items()))),
    "a list for Tuple": (PAIR, GOOD_PAIR | {"at": [2, np.ones(1, np.float32)]}),
}
MAY_LOSE_DIGITS = ("float64 for float32", "whole numbers for float32")
"""Worth a line in the log, once."""


@pytest.mark.parametrize("setting", FEW, ids=str, indirect=True)
@pytest.mark.parametrize("what", ACCEPTED)
def test_an_observation_that_gymnasium_takes_is_taken(
    make: Make, what: str, caplog: pytest.LogCaptureFixture, figure: Record
) -> None:
    factory = functools.partial(Offering, *ACCEPTED[what])
    theirs = gymnasium.vector.SyncVectorEnv([factory] * 3)
    ours = make(factory, 3)
    for envs in (theirs, ours):
        envs.reset(seed=0)
    expected, *_ = theirs.step(np.zeros(3, dtype=np.int64))
    for _ in range(2):
        got, *_ = ours.step(np.zeros(3, dtype=np.int64))
        np.testing.assert_equal(got, expected)
    warned = [text for text in caplog.messages if "is cast to" in text]
    assert len(warned) == (what in MAY_LOSE_DIGITS)
    figure("F12", "what Gymnasium accepts", "accepted, with the same result")


ACCEPTED_ACTIONS: dict[str, tuple[Any, Any]] = {
    "a list": ("discrete", [0, 3, 6]),
    "a tuple": ("discrete", (0, 3, 6)),
    "int32 for Discrete": ("discrete", np.array([0, 3, 6], np.int32)),
    "uint8 for Discrete": ("discrete", np.array([0, 3, 6], np.uint8)),
    "out of bounds": ("box", np.full((3, 3), 7, np.float32)),
    "float64 for float32": ("box", np.full((3, 3), 0.5)),
    "whole numbers for float32": ("box", np.ones((3, 3), np.int64)),
    "lists of lists": ("multidiscrete", [[0, 4, 1], [2, 0, 0], [1, 1, 1]]),
}


@pytest.mark.parametrize("setting", FEW, ids=str, indirect=True)
@pytest.mark.parametrize("what", ACCEPTED_ACTIONS)
def test_an_action_that_gymnasium_takes_is_taken(make: Make, what: str, figure: Record) -> None:
    form, actions = ACCEPTED_ACTIONS[what]
    factory = functools.partial(CountingWorld, action=form)
    results = []
    for envs in (gymnasium.vector.SyncVectorEnv([factory] * 3), make(factory, 3)):
        envs.reset(seed=0)
        results.append(envs.step(actions)[1])
    np.testing.assert_array_equal(*results)
    figure("F12", "what Gymnasium accepts", "accepted, with the same result")
