"""Is a picture drawn from any number of rows, with what it should show?"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shoal.errors import ConfigError
from shoal.monitor.curves import MAX_POINTS, Series, _figure, collect, draw
from shoal.monitor.jsonl import JsonLines, Row

Rows = Callable[[int], list[Row]]


def rows(count: int) -> list[Row]:
    made: list[Row] = []
    for k in range(count):
        made.append(
            {
                "step": 2048 * (k + 1),
                "episode/return": 20.0 + k,
                "episode/return_mean": 15.0 + k,
                "train/policy_loss": math.sin(k),
                "train/value_loss": 100.0 / (k + 1),
                "engine/steps_per_s": 1e4,
            }
        )
        if k % 10 == 9:
            made.append({"step": 2048 * (k + 1), "eval/return_mean": 30.0, "eval/return_std": 2.0})
    return made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "my-run" / "metrics.jsonl"


def fill(path: Path, given: list[Row]) -> None:
    sink = JsonLines(path)
    for row in given:
        sink.write(int(row["step"]), {name: row[name] for name in row if name != "step"})
    sink.close()


def colours(path: Path) -> int:
    with Image.open(path) as image:
        return len(image.convert("RGB").getcolors(image.width * image.height) or [])


@pytest.mark.parametrize("count", [1, 2, 30, 5000])
def test_a_picture_is_drawn_of_few_and_of_many_rows(source: Path, count: int) -> None:
    fill(source, rows(count))
    target = source.parent / "plots" / "curves.png"
    draw(source, target)
    with Image.open(target) as image:
        assert image.format == "PNG"
        assert image.width == 1200
    assert colours(target) > 20
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("there", [False, True], ids=["no file", "empty file"])
def test_a_run_without_rows_gets_a_picture_that_says_so(source: Path, there: bool) -> None:
    if there:
        source.parent.mkdir()
        source.touch()
    draw(source, source.parent / "curves.png")
    (axes,) = _figure({}, "").axes
    assert [text.get_text() for text in axes.texts] == ["nothing recorded yet"]


def titles(given: list[Row]) -> list[str]:
    return [axes.get_title(loc="left") for axes in _figure(collect(given), "").axes]


def test_only_panels_with_data_are_drawn() -> None:
    assert titles(rows(3)) == [
        "Return",
        "Environment steps per second",
        "Loss of the policy",
        "Loss of the value function",
    ]


def test_an_unknown_metric_has_a_panel_of_its_own() -> None:
    assert "team/height" in titles([{"step": 1, "team/height": 3.0}])


def test_the_return_panel_has_points_mean_and_evaluations() -> None:
    axes = _figure(collect(rows(50)), "").axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "return of the latest episode that ended",
        "mean return of the latest 100 episodes",
        "evaluation ± std",
    ]
    points, mean, *_ = axes.lines
    assert (points.get_alpha() or 1.0) < 0.5
    assert list(np.asarray(mean.get_ydata())) == [15.0 + k for k in range(50)]
    (bars,) = axes.containers
    assert list(np.asarray(bars[0].get_ydata())) == [30.0] * 5


def test_axes_and_picture_are_labelled() -> None:
    figure = _figure(collect(rows(50)), "my-run")
    assert figure.get_suptitle() == "my-run"
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["return", "steps per s", "policy loss", "value loss"]
    assert {axes.get_xlabel() for axes in figure.axes} == {"environment steps"}


def test_noise_is_faint_behind_its_mean() -> None:
    noisy: list[Row] = [{"step": k, "train/entropy": float(k % 2)} for k in range(1000)]
    raw, mean = _figure(collect(noisy), "").axes[1].lines
    assert (raw.get_alpha() or 1.0) < 0.5
    assert np.allclose(np.asarray(mean.get_ydata()), 0.5)
    assert np.all(np.diff(np.asarray(mean.get_xdata())) > 0)


def test_numbers_that_are_none_leave_gaps_only() -> None:
    found = collect(
        [{"step": 1, "a/b": math.nan}, {"step": 2, "a/b": 1.0}, {"step": 3, "a/b": math.inf}]
    )
    line = _figure(found, "").axes[1].lines[0]
    assert list(np.asarray(line.get_xdata())) == [2]


def test_too_many_points_are_thinned_out_evenly() -> None:
    series = Series()
    for step in range(50 * MAX_POINTS):
        series.add(step, -step)
    assert MAX_POINTS / 2 <= len(series.steps) <= MAX_POINTS
    assert len(set(np.diff(series.steps))) == 1
    assert series.steps[0] == 0
    assert series.steps[-1] > 49 * MAX_POINTS
    assert series.values == [-step for step in series.steps]


def test_pictures_leave_matplotlib_as_it_was(source: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw(source, source.parent / "curves.png")
    assert dict(matplotlib.rcParams) == before
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_a_picture_that_cannot_be_written_leaves_the_old_one(source: Path) -> None:
    target = source.parent / "curves.png"
    draw(source, target)
    before = target.read_bytes()
    source.write_text("not a row\n")
    with pytest.raises(ConfigError, match="line 1 is no row"):
        draw(source, target)
    assert target.read_bytes() == before


def test_the_absence_of_matplotlib_says_what_to_install(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r'pip install "shoal-rl\[train\]"'):
        draw(source, source.parent / "curves.png")
