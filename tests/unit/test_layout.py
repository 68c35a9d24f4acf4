"""Is a space, seen as leaves, still the same space, and does bad data stop at the writer?"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ContractError
from shoal.layout import Layout, Writer
from trace_of import assert_same


class Marks(spaces.Space[Any]):
    """A space that Gymnasium has never heard of."""

    def sample(self, mask: Any = None, probability: Any = None) -> frozenset[int]:
        return frozenset(self.np_random.integers(9, size=3).tolist())

    def contains(self, x: Any) -> bool:
        return isinstance(x, frozenset)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Marks)


class Packed(Marks):
    """A custom space for which the user has told Gymnasium how to batch it."""


@pytest.fixture
def packed() -> Iterator[Packed]:
    """`Packed` with its batching registered, as a user would, and taken back afterwards."""
    create_empty_array.register(Packed, lambda space, n=1, fn=np.zeros: [None] * n)
    concatenate.register(Packed, lambda space, items, out: ["packed", *items])
    yield Packed()
    for function in (create_empty_array, concatenate):
        function.register(Packed, function.dispatch(Marks))


def plain_spaces() -> st.SearchStrategy[spaces.Space[Any]]:
    shapes = st.sampled_from([(), (1,), (3,), (2, 3), (0,)])
    floats = st.sampled_from([np.float16, np.float32, np.float64])
    integers = st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.uint16])
    return st.one_of(
        st.builds(lambda shape, dtype: spaces.Box(-9, 9, shape, dtype), shapes, floats),
        st.builds(lambda shape, dtype: spaces.Box(0, 99, shape, dtype), shapes, integers),
        st.builds(lambda shape: spaces.Box(0, 1, shape, np.bool_), shapes),
        st.builds(
            lambda n, start: spaces.Discrete(n, start=start),
            st.integers(1, 5),
            st.integers(-3, 3),
        ),
        st.sampled_from(
            [
                spaces.MultiDiscrete([3, 5]),
                spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, -2]]),
                spaces.MultiBinary(4),
                spaces.MultiBinary([2, 3]),
            ]
        ),
    )


def object_spaces() -> st.SearchStrategy[spaces.Space[Any]]:
    return st.sampled_from(
        [
            spaces.Text(8),
            spaces.Sequence(spaces.Discrete(4)),
            spaces.Sequence(spaces.Box(-1, 1, (2,)), stack=True),
            spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(3)),
            spaces.OneOf((spaces.Discrete(2), spaces.Box(-1, 1, (2,)))),
            Marks(),
        ]
    )


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[spaces.Space[Any]]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.dictionaries(st.sampled_from("abcd"), inner, max_size=3).map(spaces.Dict),
            st.lists(inner, max_size=3).map(spaces.Tuple),
        ),
        max_leaves=6,
    )


def any_spaces() -> st.SearchStrategy[spaces.Space[Any]]:
    return nested(st.one_of(plain_spaces(), object_spaces()))


def values_of(space: spaces.Space[Any], count: int, seed: int) -> list[Any]:
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def writer_for(space: spaces.Space[Any], **kwargs: Any) -> tuple[Writer, list[Any], list[str]]:
    layout, notes = Layout(space), []
    row = [np.zeros(leaf.shape, leaf.dtype) for leaf in layout.arrays]
    kwargs = {"note": lambda key, text: notes.append(text)} | kwargs
    return Writer(layout, row, **kwargs), row, notes


# --- leaves -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(-1, 1, (2, 3), np.float16), (2, 3), np.float16),
        (spaces.Box(0, 1, (4,), np.bool_), (4,), np.bool_),
        (spaces.Box(-1, 1, (), np.float64), (), np.float64),
        (spaces.Discrete(3, start=-1), (), np.int64),
        (spaces.MultiDiscrete([2, 3]), (2,), np.int64),
        (spaces.MultiBinary([2, 2]), (2, 2), np.int8),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_plain_space_is_one_array_leaf_of_its_shape_and_dtype(
    space: spaces.Space[Any], shape: tuple[int, ...], dtype: Any
) -> None:
    layout = Layout(space)
    (leaf,) = layout.leaves
    assert (leaf.path, leaf.shape, leaf.dtype, leaf.is_array) == ((), shape, np.dtype(dtype), True)
    assert layout.is_plain
    assert not layout.has_objects


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(4),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Graph(spaces.Discrete(2), None),
        spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))),
        Marks(),
    ],
    ids=lambda space: type(space).__name__,
)
def test_what_gymnasium_batches_as_a_tuple_is_an_object_leaf(space: spaces.Space[Any]) -> None:
    layout = Layout(space)
    assert [leaf.is_array for leaf in layout.leaves] == [False]
    assert layout.has_objects
    assert layout.arrays == ()
    assert layout.batch_objects(layout.leaves[0], ["x", "y"]) == ("x", "y")


def test_nested_leaves_keep_the_order_of_the_space_and_are_named_as_a_user_would() -> None:
    layout = Layout(
        spaces.Dict(
            {
                "words": spaces.Text(4),
                "outer": spaces.Tuple((spaces.Discrete(2), spaces.Dict({"x": spaces.Box(0, 1)}))),
            }
        )
    )
    # Gymnasium's Dict sorts its keys.
    assert [leaf.name("observation") for leaf in layout.leaves] == [
        "observation['outer'][0]",
        "observation['outer'][1]['x']",
        "observation['words']",
    ]
    assert [leaf.is_array for leaf in layout.leaves] == [True, True, False]
    assert layout.has_objects
    assert not layout.is_plain


def test_a_subclass_of_box_is_an_array_leaf_like_box() -> None:
    class Image(spaces.Box):
        pass

    (leaf,) = Layout(Image(0, 255, (4, 4), np.uint8)).leaves
    assert leaf.is_array
    assert leaf.shape == (4, 4)


def test_batching_that_a_user_registered_for_a_space_is_used(packed: Packed) -> None:
    layout = Layout(spaces.Dict({"p": packed, "x": spaces.Discrete(2)}))
    leaf = layout.leaves[0]
    assert not leaf.is_array
    assert layout.batch_objects(leaf, [1, 2]) == ["packed", 1, 2]


@settings(deadline=None)
@given(space=any_spaces(), seed=st.integers(0, 99))
def test_taking_apart_and_assembling_gives_the_value_back(
    space: spaces.Space[Any], seed: int
) -> None:
    layout = Layout(space)
    (value,) = values_of(space, 1, seed)
    parts = layout.take_apart(value)
    assert len(parts) == len(layout.leaves)
    assert_same(layout.assemble(parts), value)


@settings(deadline=None)
@given(space=any_spaces(), seed=st.integers(0, 99))
def test_a_batch_made_of_leaves_is_the_batch_that_gymnasium_makes(
    space: spaces.Space[Any], seed: int
) -> None:
    layout, values = Layout(space), values_of(space, 3, seed)
    columns = list(zip(*(layout.take_apart(value) for value in values), strict=True))
    batch = layout.assemble(
        [
            np.stack([np.asarray(part, leaf.dtype) for part in column])
            if leaf.is_array
            else layout.batch_objects(leaf, column)
            for leaf, column in zip(layout.leaves, columns, strict=True)
        ]
    )
    assert_same(batch, concatenate(space, values, create_empty_array(space, len(values))))


@settings(deadline=None)
@given(space=any_spaces(), seed=st.integers(0, 99))
def test_what_is_written_is_what_was_given(space: spaces.Space[Any], seed: int) -> None:
    writer, row, notes = writer_for(space)
    layout = Layout(space)
    for value in values_of(space, 2, seed):  # the second must leave nothing of the first
        writer.write(value)
        arrays, objects = iter(row), iter(writer.objects)
        for leaf, part in zip(layout.leaves, layout.take_apart(value), strict=True):
            if leaf.is_array:
                assert_same(next(arrays), np.asarray(part, leaf.dtype))
            else:
                assert next(objects) is part
    assert notes == []


@settings(deadline=None)
@given(space=nested(plain_spaces()))
def test_batches_out_of_rows_have_the_shapes_and_dtypes_of_the_batched_space(
    space: spaces.Space[Any],
) -> None:
    batched = [(leaf.shape, leaf.dtype) for leaf in Layout(batch_space(space, 2)).arrays]
    assert batched == [((2, *leaf.shape), leaf.dtype) for leaf in Layout(space).arrays]


# --- what a writer accepts ---------------------------------------------------

VECTOR = spaces.Box(-1, 1, (2,), np.float32)


def test_an_array_that_fits_is_copied_and_not_kept() -> None:
    writer, (row,), notes = writer_for(VECTOR)
    value = np.array([0.25, -0.5], np.float32)
    writer.write(value)
    value[:] = 9
    assert row.tolist() == [0.25, -0.5]
    assert notes == []


def test_a_float64_observation_of_a_float32_space_is_cast_and_noted_with_its_name() -> None:
    writer, (row,), notes = writer_for(spaces.Dict({"x": VECTOR}))
    writer.write({"x": np.array([0.1, 0.2])})
    assert_same(row, np.array([0.1, 0.2], np.float32))
    (note,) = notes
    assert "observation['x']" in note
    assert "float64" in note
    assert "float32" in note


def test_the_note_of_a_cast_has_one_key_however_often_it_happens() -> None:
    keys: set[str] = set()
    writer, _, _ = writer_for(VECTOR, note=lambda key, text: keys.add(key))
    for _ in range(3):
        writer.write(np.array([0.1, 0.2]))
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (VECTOR, [1, 0.5], [1.0, 0.5]),
        (VECTOR, (np.float64(0.5), 0), [0.5, 0.0]),
        (spaces.Discrete(5), 3, 3),
        (spaces.Discrete(5), np.int32(3), 3),
        (spaces.Discrete(5), np.array(3), 3),
        (spaces.Discrete(5), True, 1),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([3.0, 255.0]), [3, 255]),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([3, 255], np.int64), [3, 255]),
        (spaces.MultiBinary(3), np.array([True, False, True]), [1, 0, 1]),
        (VECTOR, np.array([True, False]), [1.0, 0.0]),
    ],
)
def test_what_loses_nothing_is_accepted(
    space: spaces.Space[Any], value: Any, expected: Any
) -> None:
    writer, (row,), _ = writer_for(space)
    writer.write(value)
    assert row.tolist() == expected


def test_numbers_without_a_dtype_of_their_own_are_cast_without_a_note() -> None:
    writer, (row,), notes = writer_for(VECTOR)
    writer.write([0.1, 0.2])
    assert_same(row, np.array([0.1, 0.2], np.float32))
    assert notes == []


def test_box_bounds_are_not_enforced() -> None:
    writer, (row,), notes = writer_for(VECTOR)
    writer.write(np.array([50, -50], np.float32))
    assert row.tolist() == [50, -50]
    assert notes == []


def test_nan_and_infinity_pass_unless_asked_for() -> None:
    writer, (row,), _ = writer_for(VECTOR)
    writer.write(np.array([np.nan, np.inf], np.float32))
    assert np.isnan(row[0])
    assert np.isinf(row[1])


def test_a_big_endian_observation_is_written_by_value() -> None:
    writer, (row,), _ = writer_for(VECTOR)
    writer.write(np.array([0.5, 0.25], ">f4"))
    assert row.tolist() == [0.5, 0.25]


# --- what a writer refuses ---------------------------------------------------


@pytest.mark.parametrize(
    ("space", "value", "said"),
    [
        (VECTOR, np.zeros((1, 2), np.float32), ["observation", "(1, 2)", "(2,)"]),
        (VECTOR, np.float32(1), ["shape ()", "(2,)"]),
        (VECTOR, np.zeros(1, np.float32), ["(1,)", "(2,)"]),
        (VECTOR, None, ["observation is None", "Box"]),
        (VECTOR, [[1, 2], [3]], ["observation", "inhomogeneous"]),
        (VECTOR, {"x": 1}, ["observation"]),
        (VECTOR, ["a", "b"], ["observation", "without loss"]),
        (VECTOR, np.array([object(), 1]), ["observation", "object"]),
        (VECTOR, np.array([1 << 24, (1 << 24) + 1]), ["observation", "float32", "without loss"]),
        (spaces.Box(-128, 127, (1,), np.int8), np.array([300]), ["int8", "300"]),
        (spaces.Discrete(5), 1.5, ["float64", "int64", "1.5"]),
        (spaces.Discrete(5), np.nan, ["nan"]),
        (spaces.Discrete(5), [3], ["shape (1,)", "()"]),
        (spaces.Box(0, 255, (1,), np.uint8), np.array([256]), ["uint8", "256"]),
        (spaces.Box(0, 255, (1,), np.uint8), np.array([-1]), ["uint8", "-1"]),
        (spaces.Box(0, 255, (1,), np.uint8), np.array([0.5]), ["uint8", "0.5"]),
        (spaces.Box(0, 1, (1,), np.bool_), np.array([2]), ["bool", "2"]),
        (VECTOR, np.array([1j, 0]), ["complex"]),
    ],
)
def test_what_does_not_fit_its_leaf_is_refused_with_expected_and_got(
    space: spaces.Space[Any], value: Any, said: list[str]
) -> None:
    writer, (row,), _ = writer_for(space)
    with pytest.raises(ContractError) as caught:
        writer.write(value)
    for text in said:
        assert text in str(caught.value)
    assert not np.any(row), "a refused value must not be written"


NESTED = spaces.Dict(
    {"pose": spaces.Dict({"x": VECTOR, "y": VECTOR}), "pair": spaces.Tuple((VECTOR, VECTOR))}
)
GOOD = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"pose": {"x": GOOD}, "pair": (GOOD, GOOD)}, ["observation['pose']", "missing ['y']"]),
        (
            {"pose": {"x": GOOD, "y": GOOD, "z": GOOD}, "pair": (GOOD, GOOD)},
            ["observation['pose']", "too many ['z']"],
        ),
        ({"pose": {"x": GOOD, "y": GOOD}}, ["observation has", "missing ['pair']"]),
        ({"pose": GOOD, "pair": (GOOD, GOOD)}, ["observation['pose']", "a dict with"]),
        ({"pose": {"x": GOOD, "y": GOOD}, "pair": (GOOD,)}, ["observation['pair']", "tuple of 2"]),
        ({"pose": {"x": GOOD, "y": GOOD}, "pair": 5}, ["observation['pair'] is 5", "tuple of 2"]),
        (
            {"pose": {"x": GOOD, "y": GOOD}, "pair": (GOOD, np.zeros(3))},
            ["observation['pair'][1]", "(3,)", "(2,)"],
        ),
        ({"pose": {"x": GOOD, "y": None}, "pair": (GOOD, GOOD)}, ["observation['pose']['y']"]),
        (None, ["observation is None"]),
    ],
)
def test_a_wrong_structure_is_refused_with_the_path_to_it(value: Any, said: list[str]) -> None:
    writer, _, _ = writer_for(NESTED)
    with pytest.raises(ContractError) as caught:
        writer.write(value)
    for text in said:
        assert text in str(caught.value)


def test_a_list_is_as_good_as_a_tuple_and_any_mapping_as_good_as_a_dict() -> None:
    writer, rows, _ = writer_for(NESTED)
    one = np.ones(2, np.float32)
    writer.write({"pair": [one, one], "pose": OrderedDict(y=one, x=one)})
    assert all(row.all() for row in rows)


# --- finite ------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("space", [VECTOR, spaces.Dict({"x": VECTOR})], ids=["plain", "dict"])
def test_check_finite_refuses_nan_and_infinity(space: spaces.Space[Any], bad: float) -> None:
    writer, _, _ = writer_for(space, check_finite=True)
    value = np.array([0, bad], np.float32)
    with pytest.raises(ContractError, match="not finite"):
        writer.write(value if space is VECTOR else {"x": value})


def test_check_finite_lets_numbers_and_integers_pass() -> None:
    space = spaces.Tuple((VECTOR, spaces.Discrete(4)))
    writer, rows, _ = writer_for(space, check_finite=True)
    writer.write((np.ones(2, np.float32), 3))
    assert [row.tolist() for row in rows] == [[1, 1], 3]


def test_check_finite_sees_what_becomes_infinite_in_the_cast() -> None:
    writer, (row,), _ = writer_for(VECTOR, check_finite=True)
    with np.errstate(over="ignore"), pytest.raises(ContractError, match="not finite"):
        writer.write(np.array([1e300, 0.0]))
    assert np.isfinite(row).all()


@pytest.mark.parametrize("value", [b"abc", np.bytes_(b"abc")])
def test_bytes_are_no_row_of_numbers(value: Any) -> None:
    row = np.zeros(3, np.uint8)
    writer = Writer(Layout(spaces.Box(0, 255, (3,), np.uint8)), [row], note=lambda *_: None)
    with pytest.raises(ContractError):
        writer.write(value)


def test_a_dict_that_makes_up_what_is_missing_is_refused() -> None:
    box = spaces.Box(-1, 1, (3,), np.float32)
    layout = Layout(spaces.Dict(a=box, b=box))
    value = defaultdict(lambda: np.zeros(3, np.float32), a=np.ones(3, np.float32))
    value["x"] = np.ones(3, np.float32)
    writer = Writer(layout, [np.zeros(3, np.float32) for _ in range(2)], note=lambda *_: None)
    with pytest.raises(ContractError, match="wrong keys"):
        writer.write(value)
    inner = Layout(spaces.Dict(a=spaces.Dict({}), b=box))
    writer = Writer(inner, [np.zeros(3, np.float32)], note=lambda *_: None)
    with pytest.raises(ContractError, match="wrong keys"):
        writer.write({"b": np.ones(3, np.float32)})
    writer.write({"a": {}, "b": np.ones(3, np.float32)})


def test_a_box_of_foreign_byte_order_is_written() -> None:
    row = np.zeros(3, ">f4")
    writer = Writer(Layout(spaces.Box(-1, 1, (3,), np.dtype(">f4"))), [row], note=lambda *_: None)
    for dtype in (">f4", "<f4"):
        row[:] = 0
        writer.write(np.ones(3, dtype))
        assert row.tolist() == [1.0, 1.0, 1.0]


DEEP = spaces.Dict(
    {
        "near": spaces.Box(-1, 1, (2,), np.float32),
        "inner": spaces.Tuple(
            [spaces.Dict({"far": spaces.Box(0, 9, (2, 2), np.int8)}), spaces.Discrete(4)]
        ),
    }
)


def deep(far: Any, choice: Any) -> dict[str, Any]:
    return {"near": np.ones(2, np.float32), "inner": ({"far": far}, choice)}


@pytest.mark.parametrize("choice", [np.array(3), np.int64(3), 3])
def test_what_lies_deep_is_written_whatever_kind_of_number_it_is(choice: Any) -> None:
    layout = Layout(DEEP)
    row = [np.zeros(leaf.shape, leaf.dtype) for leaf in layout.leaves]
    writer = Writer(layout, row, note=lambda key, text: None)
    far = np.array([[1, 2], [3, 4]], np.int8)
    writer.write(deep(far, choice))
    assert_same(layout.assemble(row), deep(far, np.array(3)))


def test_what_lies_deep_and_does_not_fit_is_refused_by_its_name() -> None:
    layout = Layout(DEEP)
    row = [np.zeros(leaf.shape, leaf.dtype) for leaf in layout.leaves]
    writer = Writer(layout, row, note=lambda key, text: None)
    with pytest.raises(ContractError, match=r"observation\['inner'\]\[0\]\['far'\] has shape"):
        writer.write(deep(np.zeros(3, np.int8), 1))
    with pytest.raises(ContractError, match=r"observation\['inner'\]\[0\] has the wrong keys"):
        writer.write({"near": np.ones(2, np.float32), "inner": ({"fur": 0}, 1)})
