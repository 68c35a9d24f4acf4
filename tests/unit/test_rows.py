"""Do the arrays of a pool lie where both sides expect them, each apart from the others?"""

from __future__ import annotations

import itertools
import mmap
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from shoal.engine.memory import Memory, make_private
from shoal.engine.rows import CACHE_LINE_BYTES, INFO_COLUMNS, Rows, RowShape, carve
from shoal.layout import Array, Layout

OBSERVATION = spaces.Dict(
    {
        "a": spaces.Box(0, 255, (3, 5), np.uint8),
        "b": spaces.Box(-1, 1, (), np.float16),
        "c": spaces.Text(5),
        "d": spaces.Box(-1, 1, (0, 2), np.float32),
        "e": spaces.Discrete(3),
    }
)
ACTION = spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,), np.float64)))


def shape_of(**changes: Any) -> RowShape:
    chosen = {
        "num_envs": 7,
        "slots": 2,
        "observation": Layout(OBSERVATION),
        "action": Layout(ACTION),
        "keeps_finals": True,
    } | changes
    return RowShape(**chosen)


def arrays_of(rows: Rows) -> list[Array]:
    rings = [array for slot in rows.observations for array in slot]
    scalars = [rows.rewards, rows.terminations, rows.truncations]
    rest = [rows.asked, rows.generators, rows.info_present, rows.info_bytes]
    shelves = [array for shelf in rows.shelves for array in shelf]
    return [*rings, *rows.finals, *rows.actions, *scalars, *rest, *shelves]


def memory_for(shape: RowShape) -> Memory:
    memory = Memory.create()
    memory.resize(shape.nbytes(), shape.own_bytes())
    return memory


def test_every_array_has_a_row_for_every_environment() -> None:
    rows = Rows(shape_of())
    shapes = [(7, 3, 5), (7,), (7, 0, 2), (7,)]
    dtypes = [np.uint8, np.float16, np.float32, np.int64]
    for slot in rows.observations:
        assert [array.shape for array in slot] == shapes
        assert [array.dtype for array in slot] == dtypes
    assert len(rows.observations) == 2
    assert [array.shape for array in rows.finals] == shapes
    assert [array.shape for array in rows.actions] == [(7,), (7, 2)]
    assert rows.rewards.shape == rows.terminations.shape == rows.truncations.shape == (2, 7)
    assert rows.asked.shape == (2, 7)
    assert rows.step_ns.shape == (7,)
    assert rows.info_present.shape == (INFO_COLUMNS, 7)


def test_rewards_are_float64_and_flags_are_bool() -> None:
    rows = Rows(shape_of())
    assert rows.rewards.dtype == np.float64
    assert rows.terminations.dtype == rows.truncations.dtype == np.bool_


def test_last_observations_have_rows_only_where_they_are_kept() -> None:
    rows = Rows(shape_of(keeps_finals=False))
    assert all(array.size == 0 for array in rows.finals)
    many = {"num_envs": 1000}
    assert shape_of(keeps_finals=False, **many).nbytes() < shape_of(**many).nbytes()


@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_all_arrays_begin_at_zero_and_can_be_written(shared: bool) -> None:
    rows = Rows(shape_of(blocks=2), memory_for(shape_of(blocks=2)).view if shared else None)
    for array in arrays_of(rows):
        assert not array.any()
        array[...] = 1
        assert array.all()


@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_no_two_arrays_share_a_cache_line(shared: bool) -> None:
    """Neighbours are written by different workers: sharing a line would make each wait."""
    entries, nbytes = shape_of().entries(), shape_of().nbytes()
    kept = [  # several at once: where private memory begins is a matter of luck
        carve(entries, memoryview(mmap.mmap(-1, nbytes)) if shared else None) for _ in range(16)
    ]
    for arrays in kept:
        lines = [
            range(
                array.ctypes.data // CACHE_LINE_BYTES,
                (array.ctypes.data + array.nbytes - 1) // CACHE_LINE_BYTES + 1,
            )
            for array in arrays
            if array.size
        ]
        for before, after in itertools.pairwise(lines):
            assert before.stop <= after.start


def test_what_is_written_into_one_array_shows_in_no_other() -> None:
    rows = Rows(shape_of())
    arrays = arrays_of(rows)
    for k, array in enumerate(arrays):
        array[...] = 1
        assert not any(other.any() for j, other in enumerate(arrays) if j != k)
        array[...] = 0


def test_equal_shapes_over_one_buffer_are_the_same_arrays() -> None:
    """How a worker that knows only the shape finds the caller's rows."""
    shape = shape_of(blocks=2, shelves_per_block=3)
    memory = memory_for(shape)
    caller, worker = Rows(shape, memory.view), Rows(shape, memory.view)
    for k, (ours, theirs) in enumerate(zip(arrays_of(caller), arrays_of(worker), strict=True)):
        ours[...] = k % 2 + 1
        assert (theirs == ours).all()


def test_the_bytes_announced_are_just_enough() -> None:
    shape = shape_of(blocks=2)
    asked = []

    def part(offset: int, nbytes: int) -> memoryview:
        asked.append((offset, offset + nbytes))
        return memoryview(bytearray(nbytes))

    Rows(shape, part)
    assert asked[0][0] == 0
    assert asked[-1][1] == shape.nbytes()
    assert all(before[1] == after[0] for before, after in itertools.pairwise(asked))
    with pytest.raises(ValueError, match="buffer"):
        Rows(shape, lambda offset, nbytes: memoryview(bytearray(nbytes - mmap.PAGESIZE)))


def test_a_block_of_shelves_is_mapped_for_whoever_keeps_it() -> None:
    """Whoever holds what lay there before holds neither the rows nor the other shelves."""
    shape = shape_of(blocks=2)
    memory = memory_for(shape)
    caller, worker = Rows(shape, memory.view), Rows(shape, memory.view)
    kept = caller.shelves[1][0]
    kept[...] = 5
    make_private(caller.rooms[1].memory)
    caller.reopen(1)
    worker.shelves[1][0][...] = 6
    assert (kept == 5).all()
    assert (caller.shelves[1][0] == 6).all()
    kept[...] = 7
    assert (worker.shelves[1][0] == 6).all()


def test_a_space_without_any_array_has_no_observation_rows() -> None:
    rows = Rows(shape_of(observation=Layout(spaces.Text(4))))
    assert rows.observations == [[], []]
    assert rows.finals == []
