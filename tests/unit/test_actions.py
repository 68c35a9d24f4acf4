"""Do actions reach the rows of their environments, and wrong ones nobody?"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.engine.actions import ActionWriter, Loose
from shoal.engine.rows import Rows, RowShape
from shoal.errors import ContractError
from shoal.layout import Layout
from trace_of import assert_same

COUNT = 4
NOBODY: frozenset[int] = frozenset()
DISCRETE = spaces.Discrete(3, start=-1)
BOX = spaces.Box(-1, 1, (2,), np.float32)


class Bench:
    """A writer and the rows it writes to."""

    def __init__(self, space: spaces.Space[Any], *, strict: bool = True) -> None:
        rows = Rows(RowShape(COUNT, 1, Layout(spaces.Discrete(2)), Layout(space), False))
        self.rows, self.space = rows.actions, space
        self._writer = ActionWriter(rows, strict=strict)

    def write(self, actions: Any, env_ids: Any = None, ignored: Set[int] = NOBODY) -> Any:
        return self._writer.write(env_ids, actions, ignored)

    def refuses(self, actions: Any, *said: str, env_ids: Any = None, **kwargs: Any) -> None:
        before = [row.copy() for row in self.rows]
        with pytest.raises(ContractError) as caught:
            self.write(actions, env_ids, **kwargs)
        for text in said:
            assert text in str(caught.value)
        assert_same(self.rows, before)


# --- what is accepted --------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        DISCRETE,
        BOX,
        spaces.Box(0, 255, (2, 2), np.uint8),
        spaces.MultiDiscrete([3, 4], start=[1, -2]),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiBinary([2, 2]),
        spaces.Box(-1, 1, (), np.float16),
    ],
    ids=str,
)
def test_a_sampled_batch_is_written_as_it_is(space: spaces.Space[Any]) -> None:
    bench, batched = Bench(space), batch_space(space, COUNT)
    batched.seed(3)
    for _ in range(20):
        actions = batched.sample()
        assert bench.write(actions) is None
        assert_same(bench.rows, [actions])


def test_a_dict_of_actions_goes_to_its_leaves() -> None:
    bench = Bench(spaces.Dict({"move": DISCRETE, "pair": spaces.Tuple((BOX, DISCRETE))}))
    push = np.arange(8, dtype=np.float32).reshape(4, 2)
    bench.write({"pair": (push, [1, 0, 1, 0]), "move": np.array([-1, 0, 1, 0])})
    move_row, push_row, other_row = bench.rows
    assert move_row.tolist() == [-1, 0, 1, 0]
    assert_same(push_row, push)
    assert other_row.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    "actions",
    [
        [1, 0, 1, -1],
        (1, 0, 1, -1),
        np.array([1, 0, 1, -1], np.int8),
        np.array([1.0, 0.0, 1.0, -1.0]),
        [np.int64(1), 0, np.array(1), -1],
    ],
    ids=repr,
)
def test_discrete_actions_may_come_in_any_form_that_loses_nothing(actions: Any) -> None:
    bench = Bench(DISCRETE)
    bench.write(actions)
    assert_same(bench.rows, [np.array([1, 0, 1, -1])])


def test_float64_actions_are_rounded_to_float32_as_gymnasium_does() -> None:
    bench = Bench(BOX)
    actions = np.linspace(0, 1, 8).reshape(4, 2)
    bench.write(actions)
    assert_same(bench.rows, [actions.astype(np.float32)])


def test_integers_do_for_a_box_of_floats() -> None:
    bench = Bench(BOX)
    bench.write([[1, 0]] * 4)
    assert_same(bench.rows, [np.array([[1, 0]] * 4, np.float32)])


def test_bounds_of_a_box_are_not_enforced() -> None:
    bench = Bench(BOX)
    bench.write(np.full((4, 2), 9, np.float32))
    assert bench.rows[0].tolist() == [[9, 9]] * 4


def test_rows_are_copies_of_the_callers_arrays() -> None:
    bench, actions = Bench(DISCRETE), np.array([1, 0, 1, 0])
    bench.write(actions)
    actions[:] = -1
    assert bench.rows[0].tolist() == [1, 0, 1, 0]


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, COUNT - 1), unique=True, min_size=1))
def test_actions_of_some_environments_go_to_their_rows_in_the_order_given(ids: list[int]) -> None:
    bench = Bench(spaces.Discrete(100))
    bench.write([90, 91, 92, 93])
    bench.write([10 + i for i in ids], ids)
    expected = [10 + i if i in ids else 90 + i for i in range(COUNT)]
    assert bench.rows[0].tolist() == expected


# --- what is refused ---------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "actions", "said"),
    [
        (DISCRETE, [0, 0, 0], ["actions holds 3", "expected 4"]),
        (DISCRETE, [0] * 5, ["actions holds 5", "expected 4"]),
        (DISCRETE, 1, ["actions is 1", "each of 4"]),
        (DISCRETE, None, ["actions is None", "each of 4"]),
        (DISCRETE, {}, ["actions is {}", "each of 4"]),
        (DISCRETE, [[0]] * 4, ["(4, 1)", "(4,)"]),
        (BOX, np.zeros(4, np.float32), ["(4,)", "(4, 2)"]),
        (BOX, np.zeros((4, 1), np.float32), ["(4, 1)", "(4, 2)"]),
        (BOX, [[1, 2], [1], [1, 2], [1, 2]], ["actions", "(4, 2)"]),
        (DISCRETE, [0, 1, None, 0], ["actions", "object", "int64"]),
        (DISCRETE, ["0", "1", "0", "1"], ["actions", "int64"]),
        (DISCRETE, [0.5, 0, 0, 0], ["float64", "int64", "without loss"]),
        (DISCRETE, [np.nan, 0, 0, 0], ["float64", "int64", "nan"]),
        (DISCRETE, [np.inf, 0, 0, 0], ["float64", "int64", "inf"]),
        (spaces.MultiBinary(2), [[0, 1.5]] * 4, ["int8", "without loss"]),
        (BOX, np.full((4, 2), 1j), ["complex128", "float32"]),
    ],
    ids=repr,
)
def test_wrong_counts_shapes_and_kinds_are_refused_with_expected_and_got(
    space: spaces.Space[Any], actions: Any, said: list[str]
) -> None:
    Bench(space).refuses(actions, *said)


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (DISCRETE, 0, 2),
        (DISCRETE, 1, -2),
        (DISCRETE, -1, 10**15),
        (spaces.MultiDiscrete([3, 4]), [2, 3], [3, 0]),
        (spaces.MultiDiscrete([3, 4]), [2, 3], [0, -1]),
        (spaces.MultiDiscrete([3, 4], start=[1, 0]), [3, 3], [0, 0]),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), [[1, 2], [3, 4]], [[1, 2], [4, 4]]),
        (spaces.MultiBinary(3), [0, 1, 1], [0, 1, 2]),
        (spaces.MultiBinary(3), [0, 1, 1], [-1, 1, 0]),
    ],
    ids=repr,
)
def test_a_discrete_action_outside_its_space_is_refused_with_the_env_it_is_for(
    space: spaces.Space[Any], good: Any, bad: Any
) -> None:
    bench = Bench(space)
    bench.write([good] * 4)
    bench.refuses([good, good, bad, good], "of env 2", str(bad), str(space))
    bench.refuses([good, bad], "of env 1", env_ids=[3, 1])


def test_an_action_outside_int64_is_refused_before_it_is_wrapped_around() -> None:
    bench = Bench(DISCRETE)
    bench.refuses(np.array([0, 2**64 - 1, 0, 0], np.uint64))
    # 256 is 0 in eight bits.
    Bench(spaces.MultiBinary(1)).refuses(np.array([[0], [256], [0], [0]]), "env 1")


def test_the_leaf_of_a_wrong_action_is_named() -> None:
    bench = Bench(spaces.Dict({"arm": spaces.Tuple((DISCRETE, BOX))}))
    push = np.zeros((4, 2), np.float32)
    bench.refuses({"arm": ([0, 5, 0, 0], push)}, "action['arm'][0] of env 1")
    bench.refuses({"arm": ([0] * 4, push[:, :1])}, "actions['arm'][1]", "(4, 1)")
    bench.refuses({"leg": 1}, "actions has the wrong keys", "missing ['arm']", "too many ['leg']")
    bench.refuses({"arm": ([0] * 4,)}, "actions['arm']", "tuple of 2")


def test_an_action_that_does_not_count_may_be_anything_in_its_dtype() -> None:
    bench = Bench(DISCRETE)
    ignored = {1, 3}
    bench.write([0, 77, 1, -5], ignored=ignored)
    bench.write([77, 1], [3, 0], ignored=ignored)
    assert bench.rows[0].tolist() == [1, 77, 1, 77]


def test_only_actions_that_do_not_count_are_excused() -> None:
    bench = Bench(DISCRETE)
    ignored = {1, 3}
    bench.refuses([0, 77, 77, 0], "of env 2", ignored=ignored)
    bench.refuses([1, 77], "of env 2", env_ids=[3, 2], ignored=ignored)


# --- actions without a row ---------------------------------------------------


def test_what_has_no_row_is_handed_back_by_env() -> None:
    space = spaces.Dict({"move": DISCRETE, "say": spaces.Text(9), "to": spaces.Text(9)})
    bench = Bench(space)
    actions = {"move": [0, 1, 0, 1], "say": ("a", "b", "c", "d"), "to": ["w", "x", "y", "z"]}
    objects = bench.write(actions)
    assert objects == {0: ("a", "w"), 1: ("b", "x"), 2: ("c", "y"), 3: ("d", "z")}
    assert bench.rows[0].tolist() == [0, 1, 0, 1]


def test_what_has_no_row_is_handed_back_for_the_environments_asked() -> None:
    bench = Bench(spaces.Text(9))
    assert bench.write(("a", "b"), [3, 1]) == {3: ("a",), 1: ("b",)}


def test_sampled_batches_of_object_spaces_are_accepted() -> None:
    for space in (
        spaces.Text(5),
        spaces.Sequence(spaces.Discrete(3)),
        spaces.Graph(BOX, None),
        spaces.OneOf((DISCRETE, BOX)),
    ):
        batched = batch_space(space, COUNT)
        batched.seed(1)
        actions = batched.sample()
        objects = Bench(space).write(actions)
        assert_same([objects[i][0] for i in range(COUNT)], list(actions))


@pytest.mark.parametrize("actions", [("a", "b"), "abcd", 5, None], ids=repr)
def test_objects_are_counted_too(actions: Any) -> None:
    Bench(spaces.Text(9)).refuses(actions, "expected 4 values")


# --- as Gymnasium does it ----------------------------------------------------


def loose(actions: dict[int, Loose]) -> list[Any]:
    assert list(actions) == list(range(COUNT))
    assert all(isinstance(one, Loose) for one in actions.values())
    return [one.action for one in actions.values()]


def test_where_not_strict_a_batch_that_fits_still_goes_into_the_rows() -> None:
    bench, actions = Bench(DISCRETE, strict=False), np.array([0, 1, 0, 1])
    assert bench.write(actions) is None
    assert_same(bench.rows, [actions])


def test_where_not_strict_a_discrete_action_may_be_out_of_range() -> None:
    bench = Bench(DISCRETE, strict=False)
    assert bench.write(np.array([0, 50, 0, -9])) is None
    assert bench.rows[0].tolist() == [0, 50, 0, -9]


@pytest.mark.parametrize(
    "actions",
    [
        [0, 1, 0, 1],
        np.array([0, 1, 0, 1], np.int32),
        np.array([0.5, 1.5, 0.5, 1.5]),
        np.array([[0], [1], [0], [1]]),
    ],
    ids=repr,
)
def test_where_not_strict_other_actions_go_to_their_environments_untouched(actions: Any) -> None:
    bench = Bench(DISCRETE, strict=False)
    assert_same(loose(bench.write(actions)), list(actions))
    assert not bench.rows[0].any()


def test_where_not_strict_a_dict_of_other_dtypes_is_taken_apart_by_env() -> None:
    bench = Bench(spaces.Dict({"a": DISCRETE, "b": BOX}), strict=False)
    actions = {"a": [0, 1, 0, 1], "b": np.arange(8.0).reshape(4, 2)}
    assert_same(
        loose(bench.write(actions)),
        [{"a": k % 2, "b": np.array([2.0 * k, 2.0 * k + 1])} for k in range(4)],
    )
