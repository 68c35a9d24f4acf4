"""Does TensorBoard itself read what was written, also after a resume and after a full disk?"""

from __future__ import annotations

import math
import resource
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.monitor import METRICS, Steadfast, TensorBoard


def test_its_absence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r'pip install "shoal-rl\[train\]"'):
        TensorBoard(tmp_path)


accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def load(folder: Path) -> Any:
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return events


def points(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in load(folder).Scalars(name)]


def fill(folder: Path, steps: range, value: float, purge_after: int | None = None) -> None:
    sink = TensorBoard(folder, purge_after)
    for step in steps:
        sink.write(step, {"episode/return": value})
    sink.close()
    sink.close()


def test_numbers_come_back_under_their_names(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path / "events")
    sink.write(2048, {"episode/return": 21.5, "team/height": 3.0})
    sink.write(4096, {"eval/return_mean": 0.25, "train/entropy": math.nan})
    sink.close()
    assert points(tmp_path / "events", "episode/return") == [(2048, 21.5)]
    assert points(tmp_path / "events", "team/height") == [(2048, 3.0)]
    assert points(tmp_path / "events", "eval/return_mean") == [(4096, 0.25)]
    ((step, value),) = points(tmp_path / "events", "train/entropy")
    assert step == 4096
    assert math.isnan(value)


def test_rows_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    sink = TensorBoard(tmp_path)
    sink.write(1, {"episode/return": 1.0})
    assert points(tmp_path, "episode/return") == [(1, 1.0)]
    sink.close()


def test_known_names_come_with_their_meaning(tmp_path: Path) -> None:
    fill(tmp_path, range(2), 1.0)
    meta = load(tmp_path).SummaryMetadata("episode/return")
    assert meta.summary_description == METRICS["episode/return"]


def test_nothing_is_made_before_the_first_write(tmp_path: Path) -> None:
    TensorBoard(tmp_path / "events").close()
    assert not (tmp_path / "events").exists()


def test_a_resumed_run_hides_what_came_after_its_step(tmp_path: Path) -> None:
    fill(tmp_path, range(10, 60, 10), 1.0)
    fill(tmp_path, range(40, 60, 10), 2.0, purge_after=30)
    found = points(tmp_path, "episode/return")
    assert found == [(10, 1.0), (20, 1.0), (30, 1.0), (40, 2.0), (50, 2.0)]


def test_a_record_that_found_no_room_costs_no_other(tmp_path: Path) -> None:
    sink = Steadfast(TensorBoard(tmp_path))
    sink.write(1, {"episode/return": 1.0})
    (file,) = tmp_path.iterdir()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, hard))
    try:
        sink.write(2, {"episode/return": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for step in (3, 4):
        sink.write(step, {"episode/return": float(step)})
    sink.close()
    assert points(tmp_path, "episode/return") == [(1, 1.0), (3, 3.0), (4, 4.0)]


def test_a_file_where_the_folder_should_be_is_waited_out(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.write_text("in the way")
    sink = Steadfast(TensorBoard(folder))
    sink.write(1, {"episode/return": 1.0})
    folder.unlink()
    sink.write(2, {"episode/return": 2.0})
    sink.close()
    assert points(folder, "episode/return") == [(2, 2.0)]
