"""Are batched infos those of Gymnasium, however they travelled? Its own `_add_info` is the oracle.

A small troupe of writers (workers) and one reader pass infos through shared columns as the engine
does: what a reader discovers, a writer learns with one of its later commands.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.engine.infos import (
    ApartReader,
    Columns,
    ColumnSpec,
    InfoReader,
    InfoWriter,
    OddInfo,
)
from shoal.engine.rows import INFO_BYTES_PER_ENV, INFO_COLUMNS, Rows, RowShape
from shoal.layout import Layout
from trace_of import assert_same

Infos = Mapping[int, dict[Any, Any]]


class Round(NamedTuple):
    """What some environments report at once; None stands for all of them."""

    infos: Infos
    env_ids: Sequence[int] | None = None
    tells: bool = True
    """Whether the command brings news of columns (a step does, a reset does not)."""


class Troupe:
    """Writers with contiguous shares of `num_envs`, and a reader, over the same rows."""

    def __init__(
        self,
        num_envs: int = 3,
        shares: Sequence[int] = (3,),
        reader: type[InfoReader] = InfoReader,
    ) -> None:
        space = Layout(spaces.Discrete(2))
        rows = Rows(RowShape(num_envs, 1, space, space, False))
        self.num_envs, self.reader = num_envs, reader(Columns(rows))
        firsts = np.cumsum([0, *shares]).tolist()
        self.writers = [
            InfoWriter(Columns(rows), slice(first, first + count))
            for first, count in zip(firsts, shares, strict=False)
        ]
        self._blocks = [range(a, a + n) for a, n in zip(firsts, shares, strict=False)]
        self._news: list[list[ColumnSpec]] = [[] for _ in shares]

    def play(self, one: Round) -> Any:
        """The infos of one round, as the caller sees them."""
        odd: list[OddInfo] = []
        for writer, block, news in zip(self.writers, self._blocks, self._news, strict=True):
            odd += self._write(one, writer, block, news)
        found = self.reader.discover(odd)
        for news in self._news:
            news.extend(found)
        return self.reader.collect(one.env_ids, odd)

    def _write(
        self, one: Round, writer: InfoWriter, block: range, news: list[ColumnSpec]
    ) -> list[OddInfo]:
        ids = list(block) if one.env_ids is None else [i for i in one.env_ids if i in block]
        if one.tells and ids:
            for spec in news:
                assert writer.columns.add(spec)
            news.clear()
        writer.clear(None if one.env_ids is None else ids)
        for env_id in ids:
            if one.infos.get(env_id):
                writer.put(env_id, one.infos[env_id])
        odd, writer.odd = writer.odd, []
        return odd


def gymnasiums(one: Round, num_envs: int) -> dict[str, Any]:
    """What Gymnasium makes of the same infos."""
    ids = range(num_envs) if one.env_ids is None else one.env_ids
    oracle = VectorEnv[Any, Any, Any]()
    oracle.num_envs = len(ids)
    infos: dict[str, Any] = {}
    for k, env_id in enumerate(ids):
        infos = oracle._add_info(infos, one.infos.get(env_id, {}), k)
    return infos


def assert_same_types(got: Any, expected: Any, where: str = "infos") -> None:
    """Objects in object arrays are of the very type that the environment gave."""
    if isinstance(expected, dict):
        for key in expected:
            assert_same_types(got[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, np.ndarray) and expected.dtype == object:
        for k in range(len(expected)):
            assert type(got[k]) is type(expected[k]), f"{where}[{k}]: {type(got[k])}"


def assert_plays_like_gymnasium(*rounds: Round, shares: Sequence[int] = (3,)) -> None:
    num_envs = sum(shares)
    troupe = Troupe(num_envs, shares)
    for number, one in enumerate(rounds):
        got, expected = troupe.play(one), gymnasiums(one, num_envs)
        assert_same(got, expected, f"round {number}")
        assert_same_types(got, expected, f"round {number}")


def thrice(infos: Infos) -> list[Round]:
    """The same infos before their columns exist, with them, and with stale values beneath."""
    return [Round(infos)] * 3


# --- every type of value -----------------------------------------------------

VALUES = [
    3,
    -(2**62),
    2.5,
    True,
    np.int8(-4),
    np.uint64(2**63),
    np.float16(0.5),
    np.complex64(1j),
    np.bool_(True),
    np.arange(3),
    np.zeros((2, 2), np.float32),
    np.array([True, False]),
    np.array(7, np.int16),
    np.array(True),
    np.array([1, 2], ">i4"),
    np.zeros(0),
    np.zeros((0, 2), np.int32),
    np.array(["a", "bc"]),
    np.array([None, "x"], object),
    np.datetime64("2026-01-01"),
    "text",
    b"bytes",
    None,
    [1, 2],
    (1, "x"),
    {"deep": 1},
    {"deep": {"deeper": np.ones(2)}, "other": "text"},
    {},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_of_all_environments_is_batched_as_gymnasium_does(value: Any) -> None:
    assert_plays_like_gymnasium(*thrice({i: {"key": value} for i in range(3)}))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_of_one_environment_leaves_the_others_empty(value: Any) -> None:
    assert_plays_like_gymnasium(*thrice({1: {"key": value}}))


def test_numbers_and_arrays_need_no_message_once_they_have_a_column() -> None:
    troupe = Troupe()
    infos = {i: {"n": i, "x": {"y": 0.5, "z": np.ones(2)}} for i in range(3)}
    troupe.play(Round(infos))
    (writer,) = troupe.writers
    for spec in troupe._news[0]:
        writer.columns.add(spec)
    writer.put(0, infos[0])
    assert writer.odd == []


def test_no_infos_are_an_empty_dict() -> None:
    troupe = Troupe()
    assert troupe.play(Round({})) == {}
    troupe.play(Round({0: {"a": 1}}))
    troupe.play(Round({0: {"a": 1}}))
    assert troupe.play(Round({})) == {}


def test_a_value_that_is_gone_leaves_a_zero_and_not_what_was_there() -> None:
    rounds = [
        *thrice({i: {"a": 7, "v": np.full(2, 7)} for i in range(3)}),
        Round({2: {"a": 5, "v": np.full(2, 5)}}),
    ]
    troupe = Troupe()
    for one in rounds:
        infos = troupe.play(one)
    assert_same(infos["a"], np.array([0, 0, 5]))
    assert_same(infos["v"], np.array([[0, 0], [0, 0], [5, 5]]))
    assert_same(infos["_a"], np.array([False, False, True]))


def test_infos_belong_to_the_caller() -> None:
    troupe = Troupe()
    for _ in range(2):
        kept = troupe.play(Round({0: {"a": 1, "v": np.ones(2), "d": {"x": 1}}}))
    troupe.play(Round({0: {"a": 2, "v": np.zeros(2), "d": {"x": 2}}, 1: {"a": 2}}))
    assert_same(kept["a"], np.array([1, 0, 0]))
    assert_same(kept["v"], np.array([[1.0, 1.0], [0, 0], [0, 0]]))
    assert_same(kept["_a"], np.array([True, False, False]))
    assert_same(kept["d"]["x"], np.array([1, 0, 0]))


# --- types that change -------------------------------------------------------


@pytest.mark.parametrize(
    "pair",
    [
        (1, 2.75),
        (2.75, 1),
        (True, 2.5),
        (2.5, True),
        (True, 3),
        (1, True),
        (np.float32(0.1), 0.1),
        (1.5, None),
        ("text", 1),
        ("text", True),
        (None, 0.5),
        (np.zeros(2), np.ones(2, np.int8)),
        (np.array([True, False]), np.ones(2)),
        (np.array(True), np.array(2)),
        (np.zeros(3), np.ones(1)),
        (np.zeros(2), [3, 4]),
        (np.zeros(2), 5.0),
        ({"x": 1}, {"x": 2.5}),
        ({"x": True}, {"x": 2.5}),
        ({"x": 1}, {"y": "text"}),
        ({"x": 1}, OrderedDict(x=2)),
        (OrderedDict(x=1), {"x": 2}),
        (OrderedDict(x=1.5), {"x": 2}),
        ({}, {"x": 1}),
    ],
    ids=repr,
)
def test_the_first_environment_decides_the_type_whoever_came_first_before(pair: Any) -> None:
    first, second = pair
    apart = {0: {"key": first}, 2: {"key": second}}
    swapped = {0: {"key": second}, 1: {"key": first}}
    steady = {0: {"key": first}, 1: {"key": first}}
    plays = Round(steady), Round(apart), Round(apart), Round(steady)
    assert_plays_like_gymnasium(*plays)
    try:
        gymnasiums(Round(swapped), 3)
    except (ValueError, TypeError):  # shown below: ours copes where Gymnasium raises
        return
    assert_plays_like_gymnasium(*plays, Round(swapped), Round(swapped))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.zeros(2), np.ones(3)),
        (1, "text"),
        (1, None),
        (1, {"x": 1}),
        (np.zeros(2), {"x": 1}),
        (1, 2**70),
    ],
    ids=repr,
)
def test_values_that_gymnasium_cannot_batch_come_one_by_one(first: Any, second: Any) -> None:
    one = Round({0: {"key": first}, 1: {"key": second}})
    with pytest.raises((ValueError, TypeError, AttributeError, OverflowError, IndexError)):
        gymnasiums(one, 3)
    troupe = Troupe()
    for _ in range(3):  # the same before there is a column and after
        infos = troupe.play(one)
        assert infos["key"].dtype == object
        assert_same(infos["key"][0], first)
        assert_same(infos["key"][1], second)
        assert infos["key"][2] is None
        assert_same(infos["_key"], np.array([True, True, False]))


def test_a_ragged_entry_of_a_nested_dict_looks_the_same_with_and_without_columns() -> None:
    one = Round({0: {"a": {"x": np.zeros(2), "n": 1}}, 1: {"a": {"x": np.ones(3), "n": 2}}})
    troupe = Troupe()
    first = troupe.play(one)
    assert_same(first["_a"], np.array([True, True, False]))
    for _ in range(2):
        assert_same(troupe.play(one), first)


def test_an_integer_too_large_for_any_column_arrives_whole() -> None:
    troupe = Troupe()
    for value in (1, 2, 2**70, 3):
        infos = troupe.play(Round({1: {"n": value}}))
        assert infos["n"][1] == value
        assert_same(infos["_n"], np.array([False, True, False]))


# --- numbers of all kinds -----------------------------------------------------

NUMBERS = {
    "int": -7,
    "float": 2.5,
    "bool": True,
    "nan": float("nan"),
    "f8": np.float64(0.1),
    "f4": np.float32(0.1),
    "i1": np.int8(-4),
    "u1": np.uint8(250),
    "i2": np.int16(-300),
    "u2": np.uint16(60_000),
    "i4": np.int32(-(2**31)),
    "u4": np.uint32(2**32 - 1),
    "i8": np.int64(-(2**62)),
    "u8": np.uint64(2**63),
    "b1": np.bool_(True),
}


def test_numbers_of_every_kind_are_what_they_were() -> None:
    keys = list(NUMBERS)
    backwards = {key: NUMBERS[key] for key in reversed(keys)}
    every_other = {key: NUMBERS[key] for key in keys[::2]}
    assert_plays_like_gymnasium(
        *thrice(dict.fromkeys(range(3), NUMBERS)),
        Round({0: backwards, 1: every_other, 2: NUMBERS}),
        Round({1: NUMBERS}),
        Round({0: every_other}, [2, 0]),
        Round({0: NUMBERS, 2: backwards}),
    )


def test_numbers_among_other_things_are_what_they_were() -> None:
    between = {"a": 1.0, "text": "t", "b": 2.0, "more": {"c": 3.0}, "d": np.arange(2), "e": 4}
    only = {"a": 5.0, "b": 6.0, "e": 7}
    rounds = [Round({0: between, 1: only, 2: only})] * 4
    assert_plays_like_gymnasium(*rounds, Round({0: only, 1: only}), shares=(2, 1))


def test_a_number_of_another_kind_is_not_stored_as_the_usual_one() -> None:
    usual = {"n": 1.0, "m": 2}
    assert_plays_like_gymnasium(
        *thrice(dict.fromkeys(range(3), usual)),
        Round({0: {"n": 1, "m": 2}, 1: usual, 2: {"n": True, "m": np.int64(2)}}),
        Round({0: usual, 1: usual, 2: usual}),
    )


def test_an_integer_too_large_among_numbers_arrives_whole() -> None:
    troupe = Troupe()
    for value in (1, 2, 2**70, 3):
        infos = troupe.play(Round({1: {"a": 1.5, "n": value, "z": 2.5}}))
        assert [infos[key][1] for key in ("a", "n", "z")] == [1.5, value, 2.5]
        assert all(infos[f"_{key}"].tolist() == [False, True, False] for key in ("a", "n", "z"))


def test_two_infos_of_one_environment_in_a_step_are_one() -> None:
    """As when an episode ends and the next one begins."""
    troupe = Troupe(1, (1,))
    writer = troupe.writers[0]
    both = {"a": 1.0, "b": 2.0, "c": 3.0}
    for _ in range(2):
        troupe.play(Round({0: both}))
    writer.clear()
    for part in ({"a": 4.0, "c": 6.0}, {"b": 5.0}):
        writer.put(0, part)
    infos = troupe.reader.collect(None, [])
    assert {key: infos[key].tolist() for key in both} == {"a": [4.0], "b": [5.0], "c": [6.0]}


# --- more than there is room for ---------------------------------------------


def many() -> list[str]:
    """More keys than there are columns; as bools of 16 environments, all would fit the bytes."""
    return [f"key{k}" for k in range(INFO_COLUMNS + 20)]


def test_more_entries_than_columns_are_still_right() -> None:
    infos = {i: {key: (i + k) % 3 == 0 for k, key in enumerate(many())} for i in range(16)}
    assert_plays_like_gymnasium(*thrice(infos), Round({1: infos[1]}), shares=(16,))


def test_a_dict_with_more_entries_than_columns_is_still_right() -> None:
    infos = {i: {"d": {key: (i + k) % 3 == 0 for k, key in enumerate(many())}} for i in range(16)}
    assert_plays_like_gymnasium(*thrice(infos), Round({1: infos[1]}), shares=(16,))


def test_an_array_larger_than_the_room_for_infos_is_still_right() -> None:
    large = np.arange(INFO_BYTES_PER_ENV, dtype=np.float64)
    infos = {i: {"large": large + i, "small": i} for i in range(3)}
    assert_plays_like_gymnasium(*thrice(infos), Round({1: infos[1]}))


def test_room_for_infos_is_used_until_it_is_full() -> None:
    quarter = np.zeros(INFO_BYTES_PER_ENV // 4, np.uint8)
    troupe = Troupe()
    infos = {i: {f"k{k}": quarter + i for k in range(6)} for i in range(3)}
    for one in thrice(infos):
        assert_same(troupe.play(one), gymnasiums(one, 3))
    assert len(troupe.reader.columns.all) == 4


# --- some environments, several workers --------------------------------------


def test_rows_follow_the_order_of_the_environments_asked_for() -> None:
    troupe = Troupe()
    infos = {i: {"n": 10 * i, "t": f"e{i}"} for i in range(3)}
    for _ in range(2):
        got = troupe.play(Round(infos, [2, 0]))
        assert_same(got["n"], np.array([20, 0]))
        assert got["t"].tolist() == ["e2", "e0"]


def test_a_round_of_some_environments_leaves_the_infos_of_the_others_for_later() -> None:
    troupe = Troupe(4, (2, 2))
    for _ in range(2):
        troupe.play(Round({i: {"n": i + 1} for i in range(4)}))
    troupe.play(Round({0: {"n": 50}}, [0]))
    assert_same(troupe.reader.collect([0, 1, 3], [])["n"], np.array([50, 2, 4]))


def test_only_those_wanted_appear_in_the_infos_of_all() -> None:
    troupe = Troupe()
    for _ in range(2):
        troupe.play(Round({i: {"n": i + 1, "d": {"x": i}} for i in range(3)}))
    infos = troupe.reader.collect(None, [OddInfo(1, ("t",), "text")], only=[1])
    assert_same(infos["n"], np.array([0, 2, 0]))
    assert_same(infos["_n"], np.array([False, True, False]))
    assert_same(infos["_d"], np.array([False, True, False]))
    assert infos["t"].tolist() == [None, "text", None]


def test_a_worker_that_has_not_heard_of_a_column_yet_writes_beside_it() -> None:
    infos = {i: {"n": i, "d": {"x": 0.5, "s": "t"}} for i in range(4)}
    assert_plays_like_gymnasium(
        Round(infos),
        Round({0: infos[0]}, [0]),  # only the first worker is told
        Round(infos, tells=False),
        Round(infos),
        shares=(2, 2),
    )


def scalars() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.integers(-9, 9),
        st.sampled_from([0.5, 2.25, True, False, np.float32(0.1), np.int8(3), np.bool_(True)]),
        st.sampled_from(["text", None, b"raw"]),
        st.sampled_from([np.arange(2), np.ones(2), np.array(True), np.zeros(0), np.ones((2, 1))]),
    )


def infos_of_one() -> st.SearchStrategy[dict[str, Any]]:
    keys = st.sampled_from(["a", "b", "final_obs", "final_info"])
    inner = st.dictionaries(st.sampled_from("xy"), scalars(), max_size=2)
    deep = st.dictionaries(st.sampled_from(["x", "final_obs"]), st.one_of(scalars(), inner))
    dicts = st.dictionaries(st.sampled_from(["d", "final_info"]), st.one_of(inner, deep))
    return st.builds(
        lambda flat, nested: flat | nested,
        st.dictionaries(keys.filter(lambda key: key != "final_info"), scalars(), max_size=3),
        dicts,
    )


def rounds(num_envs: int) -> st.SearchStrategy[Round]:
    ids = st.one_of(
        st.none(), st.lists(st.integers(0, num_envs - 1), min_size=1, unique=True, max_size=3)
    )
    infos = st.dictionaries(st.integers(0, num_envs - 1), infos_of_one(), max_size=num_envs)
    return st.builds(Round, infos, ids, st.booleans())


@settings(deadline=None)
@given(plays=st.lists(rounds(4), min_size=1, max_size=6), cut=st.integers(1, 3))
@example(plays=[Round({0: {"a": True}, 1: {"a": 2.5}})] * 2, cut=2)
@example(plays=[Round({0: {"final_obs": np.zeros(2)}})] * 2, cut=2)
@example(plays=[Round({0: {"a": np.zeros(0)}})] * 2, cut=2)
def test_infos_are_gymnasiums_whatever_happened_before(plays: list[Round], cut: int) -> None:
    troupe = Troupe(4, (cut, 4 - cut))
    for number, one in enumerate(plays):
        got = troupe.play(one)
        try:
            expected = gymnasiums(one, 4)
        except (ValueError, TypeError, AttributeError, OverflowError, IndexError):
            continue  # ours gave something; what, is said above
        assert_same(got, expected, f"round {number}")


# --- one dict for each environment ---------------------------------------------------------------


def kinds(value: Any) -> Any:
    """The types of all that is in an info."""
    if isinstance(value, dict):
        return {key: kinds(one) for key, one in value.items()}
    return (type(value), value.dtype, value.shape) if isinstance(value, np.ndarray) else type(value)


@settings(deadline=None)
@given(plays=st.lists(rounds(4), min_size=1, max_size=6), cut=st.integers(1, 3))
@example(plays=[Round({0: {"a": np.array(True)}, 2: {"a": np.float32(0.5)}})] * 3, cut=2)
@example(plays=[Round({1: {"d": {"x": 1}}}), Round({1: {"d": {"x": "odd", "y": 2.5}}})] * 2, cut=2)
def test_infos_apart_are_what_environments_gave(plays: list[Round], cut: int) -> None:
    troupe = Troupe(4, (cut, 4 - cut), ApartReader)
    for number, one in enumerate(plays):
        ids = range(4) if one.env_ids is None else one.env_ids
        got, expected = troupe.play(one), [one.infos.get(env_id, {}) for env_id in ids]
        assert_same(got, expected, f"round {number}")
        assert list(map(kinds, got)) == list(map(kinds, expected))


def test_infos_apart_belong_to_the_caller() -> None:
    troupe = Troupe(reader=ApartReader)
    infos = {i: {"array": np.full(2, i), "number": i} for i in range(3)}
    first = [troupe.play(Round(infos)) for _ in range(2)][1]
    troupe.play(Round({i: {"array": np.full(2, 7), "number": 7} for i in range(3)}))
    assert_same(first, list(infos.values()))


def test_of_infos_apart_only_those_wanted_are_filled() -> None:
    troupe = Troupe(reader=ApartReader)
    for _ in range(2):
        troupe.play(Round({i: {"n": i + 1} for i in range(3)}))
    infos = troupe.reader.collect(None, [OddInfo(1, ("t",), "text")], only=[1])
    assert infos == [{}, {"n": 2, "t": "text"}, {}]


def test_last_observations_join_the_infos_of_their_environments() -> None:
    reader = Troupe(reader=ApartReader).reader
    infos: Any = [{}, {"n": 1}, {}]
    reader.add_finals(infos, {1: "last"}, 3)
    assert infos == [{}, {"n": 1, "final_obs": "last"}, {}]
