"""Is the place found where the spaces of two environments differ?"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from shoal.engine.compare import compare
from shoal.errors import ConfigError

BOX = spaces.Box(-1, 1, (2,), np.float32)


def nested(**changes: spaces.Space[Any]) -> spaces.Dict:
    inner = {"x": BOX, "y": spaces.Discrete(3)} | changes
    return spaces.Dict({"pair": spaces.Tuple((BOX, spaces.Dict(inner))), "text": spaces.Text(4)})


@pytest.mark.parametrize(
    ("first", "other"), [(BOX, spaces.Box(-1, 1, (2,), np.float32)), (nested(), nested())]
)
def test_equal_spaces_pass(first: spaces.Space[Any], other: spaces.Space[Any]) -> None:
    compare("observation", first, other, 1, operator.eq)


@pytest.mark.parametrize(
    ("first", "other", "said"),
    [
        (BOX, spaces.Box(-1, 1, (3,), np.float32), ["(2,)", "(3,)"]),
        (BOX, spaces.Box(-1, 1, (2,), np.float64), ["float32", "float64"]),
        (BOX, spaces.Box(-1, 2, (2,), np.float32), ["1.0", "2.0"]),
        (spaces.Discrete(3), spaces.Discrete(3, start=1), ["start=1"]),
        (BOX, spaces.Discrete(3), ["Box", "Discrete"]),
        (
            nested(),
            nested(y=spaces.Discrete(4)),
            ["at ['pair'][1]['y']", "expected Discrete(3)", "got Discrete(4)"],
        ),
        (
            spaces.Tuple((BOX, BOX)),
            spaces.Tuple((BOX, spaces.Discrete(2))),
            ["at [1]", "Box", "Discrete(2)"],
        ),
        (spaces.Tuple((BOX, BOX)), spaces.Tuple((BOX,)), ["Tuple"]),
        (nested(), nested(extra=BOX), ["at ['pair'][1]", "'extra'"]),
    ],
)
def test_a_difference_is_named_with_env_key_expected_and_got(
    first: spaces.Space[Any], other: spaces.Space[Any], said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        compare("action", first, other, 17, operator.eq)
    for text in ["action space of env 17", "env 0", *said]:
        assert text in str(caught.value)


class Odd(spaces.Space[Any]):
    """Like Gymnasium's own base class it does not say when two are equal."""

    def __init__(self, **about: Any) -> None:
        super().__init__(None, None)
        self.about = about


def odd() -> Odd:
    return Odd(limits=np.arange(3), inner=Odd(), names=["a", "b"], kind=print)


def test_spaces_that_do_not_say_when_they_are_equal_are_compared_by_what_is_in_them() -> None:
    first, other = odd(), odd()
    first.seed(1)
    compare("observation", first, other, 1, operator.eq)
    compare("observation", nested(y=odd()), nested(y=odd()), 1, operator.eq)


@pytest.mark.parametrize(
    "other",
    [
        Odd(),
        Odd(limits=np.arange(4), inner=Odd(), names=["a", "b"], kind=print),
        Odd(limits=np.arange(3), inner=Odd(depth=1), names=["a", "b"], kind=print),
        Odd(limits=np.arange(3), inner=Odd(), names=["a", "c"], kind=print),
        Odd(limits=np.arange(3), inner=Odd(), names=["a", "b"], kind=repr),
        type("Other", (Odd,), {})(),
    ],
)
def test_spaces_that_do_not_say_so_differ_where_anything_in_them_does(other: Odd) -> None:
    with pytest.raises(ConfigError, match="env 1 differs"):
        compare("observation", odd(), other, 1, operator.eq)
    with pytest.raises(ConfigError, match=r"at \['pair'\]\[1\]\['y'\]"):
        compare("observation", nested(x=odd(), y=odd()), nested(x=odd(), y=other), 1, operator.eq)


def test_what_counts_as_equal_is_for_the_caller_to_say() -> None:
    wide = spaces.Box(-9, 9, (2,), np.float32)
    compare("observation", BOX, wide, 1, lambda a, b: a.shape == b.shape)
    with pytest.raises(ConfigError):
        compare("observation", BOX, BOX.__class__(-1, 1, (2,)), 1, lambda a, b: False)
