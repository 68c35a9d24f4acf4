"""Is what was kept nobody else's, whatever it is?"""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest

from shoal.engine.keep import kept, kept_each
from trace_of import assert_same

VALUES = [
    3,
    "text",
    None,
    np.float32(1.5),
    np.arange(4).reshape(2, 2),
    np.array([[1], [2, 3]], dtype=object),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
    [1, [2, {"deep": np.zeros(2)}]],
    ({"a": [1]}, (2, [3])),
    {1, 2},
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_what_is_kept_is_the_same_and_does_not_change(value: Any) -> None:
    before, own = copy.deepcopy(value), kept(value)
    assert type(own) is type(value)
    spoil(value)
    assert_same(own, before)


def spoil(value: Any) -> None:
    """Change all that can be changed in a value."""
    if isinstance(value, np.ndarray) and value.dtype.names is None:
        for one in value.ravel() if value.dtype == object else ():
            spoil(one)
        value.fill(9)
    elif isinstance(value, np.ndarray):
        value["a"] = 9
    elif isinstance(value, dict | set):
        for one in list(value.values()) if isinstance(value, dict) else ():
            spoil(one)
        value.clear()
    elif isinstance(value, list | tuple):
        for one in value:
            spoil(one)
        if isinstance(value, list):
            value.clear()


def test_what_cannot_be_copied_stays_what_it_is() -> None:
    lock, path = threading.Lock(), [1]
    own = kept({"lock": lock, "path": path})
    path.append(2)
    assert own["lock"] is lock
    assert own["path"] == [1]
    assert kept_each({0: lock, 1: path}) == {0: lock, 1: [1, 2]}


def test_what_holds_itself_is_kept() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    own = kept(ring)
    assert own is not ring
    assert own[1] is own


def test_what_several_hold_is_copied_once() -> None:
    shared = [1]
    own = kept_each({0: {"task": shared}, 1: {"task": shared}})
    assert own[0]["task"] is own[1]["task"]
    assert own[0]["task"] is not shared
