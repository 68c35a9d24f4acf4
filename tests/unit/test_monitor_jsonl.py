"""Can what was written be read, whatever happened in between?"""

from __future__ import annotations

import json
import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from shoal.errors import ConfigError
from shoal.monitor.jsonl import TAIL_BYTES, JsonLines, read, rows, truncate_after


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "metrics.jsonl"


def fill(path: Path, steps: range = range(10, 60, 10)) -> None:
    sink = JsonLines(path)
    for step in steps:
        sink.write(step, {"episode/return": step / 4})
    sink.close()


def steps_of(path: Path) -> list[float]:
    return [row["step"] for row in read(path)]


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """Files of this process may not grow beyond a size, as on a disk that is nearly full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_rows_come_back_as_they_were_written(path: Path) -> None:
    sink = JsonLines(path)
    sink.write(2048, {"episode/return": 21.5, "run/episodes": 3})
    sink.write(4096, {"eval/return_mean": -0.1})
    sink.close()
    assert read(path) == [
        {"step": 2048, "episode/return": 21.5, "run/episodes": 3},
        {"step": 4096, "eval/return_mean": -0.1},
    ]


def test_numbers_of_any_kind_are_written(path: Path) -> None:
    sink = JsonLines(path)
    sink.write(int(np.int64(7)), {"a/b": np.float32(0.5), "a/c": np.int64(3), "a/d": True})  # type: ignore[dict-item]
    sink.close()
    assert read(path) == [{"step": 7, "a/b": 0.5, "a/c": 3.0, "a/d": 1.0}]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_number_for_is_null(path: Path, odd: float) -> None:
    sink = JsonLines(path)
    sink.write(1, {"train/policy_loss": odd})
    sink.close()

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    assert json.loads(path.read_text(), parse_constant=refuse) == {
        "step": 1,
        "train/policy_loss": None,
    }
    assert math.isnan(read(path)[0]["train/policy_loss"])


def test_every_row_is_in_the_file_before_the_next_one(path: Path) -> None:
    sink = JsonLines(path)
    for step in range(1, 4):
        sink.write(step, {})
        assert steps_of(path) == list(range(1, step + 1))
    sink.close()
    sink.close()


def test_nothing_is_made_before_the_first_row(path: Path) -> None:
    JsonLines(path).close()
    assert not path.parent.exists()


@pytest.mark.parametrize("kept", [1, 10, 20])
def test_a_torn_last_line_is_skipped(path: Path, kept: int) -> None:
    fill(path)
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    path.write_bytes(whole[: start + kept])
    assert steps_of(path) == [10, 20, 30, 40]


@pytest.mark.parametrize("torn", [b'{"step": 60, "epi', b"{", b"\0" * 100])
def test_a_torn_last_line_is_not_continued_by_the_next_row(path: Path, torn: bytes) -> None:
    fill(path)
    with path.open("ab") as file:
        file.write(torn)
    fill(path, range(70, 80, 10))
    assert steps_of(path) == [10, 20, 30, 40, 50, 70]


def test_a_torn_line_is_cut_off_a_long_file_too(path: Path) -> None:
    fill(path, range(5000))
    assert path.stat().st_size > 2 * TAIL_BYTES
    with path.open("ab") as file:
        file.write(b'{"step"')
    fill(path, range(5000, 5001))
    assert steps_of(path) == list(range(5001))


def test_a_row_that_found_no_room_leaves_nothing_of_it(path: Path) -> None:
    fill(path)
    sink = JsonLines(path)
    with room_for(path.stat().st_size + 10), pytest.raises(OSError, match="too large"):
        sink.write(60, {"episode/return": 1.0})
    assert path.read_bytes()[-1:] != b"\n", "ten bytes of it were written"
    sink.write(70, {"episode/return": 2.0})
    sink.close()
    assert steps_of(path) == [10, 20, 30, 40, 50, 70]


@pytest.mark.parametrize("spoiled", [b"not json\n", b"[1, 2]\n", b'{"a/b": 1.0}\n', b"\n"])
def test_a_line_that_is_no_row_is_named(path: Path, spoiled: bytes) -> None:
    fill(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], spoiled, *lines[2:]]))
    with pytest.raises(ConfigError, match="line 3 is no row"):
        read(path)


def test_rows_are_read_one_by_one(path: Path) -> None:
    fill(path)
    with path.open("ab") as file:
        file.write(b"not json\n")
    found = rows(path)
    assert [next(found)["step"] for _ in range(5)] == [10, 20, 30, 40, 50]
    with pytest.raises(ConfigError):
        next(found)


# --- resuming ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "left"), [(5, 0), (10, 1), (35, 3), (50, 5), (99, 5)])
def test_rows_beyond_a_step_are_dropped(path: Path, step: int, left: int) -> None:
    fill(path)
    before = path.read_bytes().splitlines()
    truncate_after(path, step)
    assert path.read_bytes().splitlines() == before[:left]
    assert list(path.parent.iterdir()) == [path]


def test_a_torn_line_goes_with_them(path: Path) -> None:
    fill(path)
    with path.open("ab") as file:
        file.write(b'{"step": 20')
    truncate_after(path, 20)
    assert path.read_bytes().endswith(b"\n")
    assert steps_of(path) == [10, 20]


def test_a_file_that_cannot_be_rewritten_stays_whole(path: Path) -> None:
    fill(path)
    before = path.read_bytes()
    with room_for(20), pytest.raises(OSError, match="too large"):
        truncate_after(path, 30)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_run_without_a_file_has_nothing_to_drop(path: Path) -> None:
    truncate_after(path, 10)
    assert not path.exists()
