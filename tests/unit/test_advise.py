"""Does `shoal advise` try what makes sense, and recommend what follows from it?"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.cli import advise as command
from shoal.cli import main
from shoal.engine.probe import Probe, Unprobed
from shoal.errors import ConfigError
from shoal.measure import BOUND, Figures, Job, Row, processes
from shoal.measure import advise as advising
from shoal.measure.advise import advise, settings, usual_counts
from shoal.measure.plot import bars, check_plot, draw, figure_of
from shoal.measure.verdict import (
    HELPS,
    SERIAL,
    Advice,
    call_of,
    conclude,
    line_of_code,
    policy_limit_s,
    recommend,
)
from shoal.vector.choice import GPU_WORKERS

CHEAP = Probe(7e-6, 7e-6, 0.3, 5e-6, 1e-3, 16, 4.0, None, 0.0, False, 1, 5000)
SLOW = replace(CHEAP, step_s=2e-3, cpu_s=2e-3, lock_free=0.0)
SLEEPER = replace(CHEAP, step_s=1e-3, cpu_s=5e-5, rests=1.0, spread=1.0, lock_free=1.0)
FREES = replace(SLOW, lock_free=0.9)
ON_GPU = replace(SLOW, uses_gpu=True, lock_free=0.9)


def tried(found: Any, cores: int, *counts: int) -> set[tuple[str, int, int | None]]:
    jobs = settings("E-v0", found, cores, counts, 0.5)
    return {(job.contestant.removeprefix("shoal "), job.num_envs, job.num_workers) for job in jobs}


def row(name: str, num_envs: int, rate: float, workers: int = 2, **figures: Any) -> Row:
    name = name if name == BOUND else f"shoal {name}"
    job = Job(name, "E-v0", num_envs, workers)
    return Row(job, {0: rate}, Figures(steps_per_s=rate, p50_s=num_envs / rate, **figures))


# --- what to try -----------------------------------------------------------------------------


def test_a_cheap_environment_is_tried_on_all_that_computes() -> None:
    assert tried(CHEAP, 2, 8) == {
        (BOUND, 8, 2),
        ("serial", 8, 1),
        ("process", 8, 2),
        ("hybrid", 8, 2),
    }


def test_uneven_steps_are_tried_with_first_ready_batches() -> None:
    uneven = replace(SLOW, spread=1.0)
    assert ("first-ready", 8, 2) in tried(uneven, 2, 8)
    assert "first-ready" not in {name for name, _, _ in tried(replace(CHEAP, spread=9.0), 2, 8)}
    assert "first-ready" not in {name for name, _, _ in tried(uneven, 2, 2)}


def test_with_many_cores_the_caller_may_have_one() -> None:
    assert ("process", 64, 15) in tried(CHEAP, 16, 64)


def test_an_environment_that_waits_is_tried_with_more_workers_than_cores() -> None:
    found = tried(SLEEPER, 2, 32)
    assert {("process", 32, 2), ("process", 32, 32), ("first-ready", 32, 32)} <= found
    assert "hybrid" not in {name for name, _, _ in found}
    assert (BOUND, 32, 32) in found, "who waits is not bound by cores"


def test_threads_are_tried_where_the_lock_is_released() -> None:
    assert "thread" in {name for name, _, _ in tried(FREES, 2, 8)}
    assert "thread" not in {name for name, _, _ in tried(SLOW, 2, 8)}


def test_an_environment_on_the_gpu_is_tried_with_few_workers() -> None:
    workers = [workers for name, _, workers in tried(ON_GPU, 16, 64) if name != "process"]
    assert max(workers) <= 4
    assert {name for name, _, _ in tried(ON_GPU, 16, 64)} == {BOUND, "serial", "process"}


def test_one_core_leaves_little_to_try() -> None:
    assert {name for name, _, _ in tried(CHEAP, 1, 8)} == {BOUND, "serial", "process"}


def test_what_could_not_be_probed_is_tried_all_the_same() -> None:
    assert {name for name, _, _ in tried(Unprobed("why"), 2, 8)} == {BOUND, "serial", "process"}


def test_environments_to_try_follow_from_cores_time_and_memory() -> None:
    assert usual_counts(CHEAP, 2) == (2, 8, 16, 32)
    assert usual_counts(CHEAP, 1) == (2, 4, 8, 16)
    assert max(usual_counts(replace(CHEAP, step_s=0.1, cpu_s=0.1), 2)) == 8
    assert max(usual_counts(SLEEPER, 1)) == 32
    assert max(usual_counts(replace(CHEAP, memory_mb=1e9), 2)) == 2
    assert usual_counts(Unprobed("why"), 2) == (2, 8, 16, 32)


# --- what follows ----------------------------------------------------------------------------


def test_the_fastest_is_recommended() -> None:
    rows = [row("serial", 8, 50.0), row("process", 8, 20.0), row("hybrid", 8, 110.0)]
    assert recommend(rows) is rows[2]


def test_what_isolation_costs_is_said_and_not_taken_in_silence() -> None:
    rows = [row("serial", 8, 50.0, 1), row("process", 8, 100.0), row("hybrid", 8, 105.0)]
    advice = conclude("E-v0", 2, SLOW, rows)
    assert advice.pick is rows[2]
    said = " ".join(advice.sentences)
    assert f"{call_of(rows[1])} keeps it to one worker, and is 0.95 times as fast" in said


def test_where_parallelism_does_not_help_serial_is_recommended() -> None:
    """Whatever is as fast as serial within what measurements differ is no reason for workers."""
    rows = [row("serial", 8, 54_980.0, 1), row("process", 8, 53_546.0), row("hybrid", 8, 56_000.0)]
    advice = conclude("CartPole-v1", 2, CHEAP, rows)
    assert advice.pick is rows[0]
    said = " ".join(advice.sentences)
    assert "does not help here" in said
    assert "(the fastest, shoal hybrid ×2, is 1.02 times as fast)" in said


def test_no_more_environments_than_it_takes() -> None:
    rows = [row("hybrid", 8, 98.0), row("hybrid", 32, 100.0), row("hybrid", 2, 60.0)]
    assert recommend(rows) is rows[0]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("serial", "envs = shoal.make('E-v0', num_envs=8, backend='serial')"),
        ("process", "envs = shoal.make('E-v0', num_envs=8, backend='process', num_workers=2)"),
        (
            "first-ready",
            "envs = shoal.make('E-v0', num_envs=8, num_workers=2, batch_size=4)  # send and recv",
        ),
    ],
)
def test_what_is_recommended_can_be_copied(name: str, line: str) -> None:
    assert line_of_code(row(name, 8, 1.0)) == line


def sentences(cores: int, found: Any, *rows: Row) -> str:
    return " ".join(conclude("E-v0", cores, found, rows).sentences)


def compared(found: Any, serial: Row, process: Row) -> dict[str, tuple[str, str]]:
    advice = conclude("E-v0", 2, found, [serial, process])
    return {one.name: (one.simulated, one.true) for one in advice.comparison}


def test_simulated_and_true_parallelism_are_compared() -> None:
    serial = row("serial", 8, 50.0, 1, cpu_s_per_million=20_000.0, total_mb=60.0, start_s=0.3)
    process = row("process", 8, 90.0, 2, cpu_s_per_million=22_000.0, total_mb=95.0, start_s=0.6)
    said = sentences(2, SLOW, serial, process)
    assert "True parallelism (process) is 1.80 times as fast as simulated (serial)" in said
    aspects = compared(replace(SLOW, render_modes="human, rgb_array"), serial, process)
    assert aspects["speed"] == ("50 steps/s", "90 steps/s")
    assert aspects["CPU"] == ("1.0 cores at work", "2.0 cores at work")
    assert aspects["memory"] == ("60 MB", "95 MB")
    assert aspects["start-up"] == ("300 ms", "600 ms")
    assert aspects["GPU"] == ("none", "none")
    assert aspects["rendering"] == ("human, rgb_array", "rgb_array; a window for each env")
    assert aspects.keys() >= {"a crash", "use it for"}


def test_what_each_holds_of_a_gpu_is_compared() -> None:
    serial = row("serial", 8, 50.0, 1, gpu_processes=1, gpu_mb=512.0)
    process = row("process", 8, 90.0, 2, gpu_processes=2)
    assert compared(ON_GPU, serial, process)["GPU"] == ("1 process, 512 MB", "2 processes")


@pytest.mark.parametrize(
    ("found", "simulated", "true"),
    [
        (SLOW, "the environment has none", "the environment has none"),
        (replace(SLOW, render_modes="human"), "human", "no pictures; a window for each env"),
        (replace(SLOW, render_modes="rgb_array, ansi"), "rgb_array, ansi", "rgb_array, ansi"),
        (Unprobed("it hung"), "not known", "not known"),
    ],
)
def test_whether_it_can_be_rendered_is_compared(found: Any, simulated: str, true: str) -> None:
    aspects = compared(found, row("serial", 8, 50.0, 1), row("process", 8, 90.0))
    assert aspects["rendering"] == (simulated, true)


def test_what_nvidia_smi_says_is_read_by_process() -> None:
    said = "101, 300\n102, 512\n101, 20\n103, [N/A]\n\nNo running processes found\n"
    assert processes.gpu_memory_of(said) == {101: 320.0, 102: 512.0}


@pytest.mark.parametrize(
    ("cores", "found", "says"),
    [
        (2, CHEAP, "does not help here: a step takes 7.0 µs"),
        (1, SLOW, "does not help here: only one core"),
        (2, ON_GPU, "uses the GPU itself"),
        (2, Unprobed("it hung"), "since it hung"),
    ],
)
def test_it_says_in_words_when_parallelism_will_not_help(cores: int, found: Any, says: str) -> None:
    said = sentences(cores, found, row("serial", 8, 100.0, 1), row("process", 8, 80.0))
    assert says in said


def test_where_it_helps_nobody_says_that_it_does_not() -> None:
    said = sentences(2, SLOW, row("serial", 8, 100.0, 1), row("process", 8, 190.0))
    assert "does not help" not in said
    assert "bound by the policy" in said


def test_a_busy_machine_is_told_of() -> None:
    rows = [row("serial", 8, 100.0, 1), row("process", 8, 190.0)]
    busy = conclude("E-v0", 2, SLOW, rows, load=3.2)
    assert busy.sentences[0].startswith("The machine was busy with something else (a load of 3.2")
    quiet = conclude("E-v0", 2, SLOW, rows, load=0.3)
    assert "busy" not in " ".join(quiet.sentences)


def test_stragglers_and_waiting_are_told_of() -> None:
    rows = row("serial", 8, 100.0, 1), row("process", 8, 190.0)
    assert "wait for the slowest" in sentences(2, replace(SLOW, spread=1.0), *rows)
    serial = rows[0]
    for found in (2, 32):
        said = sentences(2, SLEEPER, serial, row("process", 8, 190.0, found))
        assert ("more workers than cores pay" in said) == (found > 2)
    assert "waiting side by side was not" in sentences(2, SLEEPER, serial, row("process", 8, 90.0))


@pytest.mark.parametrize("rate", [110.0, 90.0])
def test_what_threads_ask_of_an_environment_is_said_where_they_are_recommended(rate: float) -> None:
    said = sentences(2, SLEEPER, row("process", 8, 100.0, 8), row("thread", 8, rate, 8))
    assert ("libraries must be made for that" in said) == (rate > 100)


def test_first_ready_batches_are_told_of_as_they_were_measured() -> None:
    rows = row("process", 8, 100.0), row("first-ready", 8, 130.0)
    said = sentences(2, replace(SLOW, spread=1.0), *rows)
    assert "do not, and are 1.30 times as fast as the best that does." in said


# --- words and recommendation agree ------------------------------------------------------------

RATES = st.floats(1.0, 1e6)
NAMES = ("serial", "process", "hybrid", "thread", "first-ready")


@st.composite
def measurements(draw: st.DrawFn) -> list[Row]:
    """Whatever a machine may come up with, with few and many environments."""
    found = []
    for num_envs in (2, 32):
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5)):
            workers = 1 if name == "serial" else draw(st.sampled_from([2, 16, 32]))
            found.append(row(name, num_envs, draw(RATES), workers))
    return found or [row("serial", 2, draw(RATES), 1)]


@given(
    measurements(),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([CHEAP, SLOW, SLEEPER, FREES, ON_GPU, Unprobed("it hung")]),
)
def test_words_and_recommendation_never_contradict_each_other(
    rows: list[Row], cores: int, found: Any
) -> None:
    advice = conclude("E-v0", cores, found, rows)
    said, here = " ".join(advice.sentences), fellows(advice)
    is_serial = advice.pick.job.contestant == SERIAL
    assert ("does not help here" in said) == (is_serial and len(here) > 1)
    serial = [one for one in here if one.job.contestant == SERIAL]
    if serial and not is_serial:
        assert advice.pick.steps_per_s >= HELPS * serial[0].steps_per_s
    if not is_serial:
        assert advice.pick.steps_per_s == max(one.steps_per_s for one in here)
    assert ("no setting of workers pays" in said) == (bool(serial) and not is_serial)
    if "more workers than cores pay" in said:
        assert (advice.pick.job.num_workers or 1) > cores
    if "with few workers" in said:
        assert (advice.pick.job.num_workers or 1) <= GPU_WORKERS
    for call, times in re.findall(r"(shoal\.make\(.*?\)) .*? is ([\d.]+) times as fast", said):
        (other,) = [one for one in here if call_of(one) == call]
        assert other is not advice.pick
        assert float(times) == pytest.approx(other.steps_per_s / advice.pick.steps_per_s, abs=0.01)


def fellows(advice: Advice) -> list[Row]:
    """All that was tried with as many environments as are recommended."""
    return [one for one in advice.rows if one.job.num_envs == advice.pick.job.num_envs]


# --- a policy that takes long ------------------------------------------------------------------


@given(st.floats(1.0, 1e6), st.floats(HELPS, 100.0), st.integers(1, 256))
def test_with_a_policy_of_that_time_parallelism_just_pays(
    rate: float, gain: float, num_envs: int
) -> None:
    serial, quick = row("serial", num_envs, rate, 1), row("process", num_envs, gain * rate)
    limit_s = policy_limit_s(quick, serial)
    if limit_s is None:  # HELPS itself, but for the last digit
        assert gain == pytest.approx(HELPS)
        return
    serial_s, quick_s = num_envs / rate, num_envs / (gain * rate)
    assert limit_s + serial_s == pytest.approx(HELPS * (limit_s + quick_s))


def test_from_which_policy_on_parallelism_stops_paying_is_said() -> None:
    said = sentences(2, SLOW, row("serial", 8, 4000.0, 1), row("process", 8, 8000.0))
    assert "A step of all 8 takes 1.0 ms." in said
    assert "With a policy of 9.0 ms or more for each batch" in said


def test_there_is_no_such_policy_where_it_never_pays() -> None:
    assert policy_limit_s(row("process", 8, 90.0), row("serial", 8, 100.0, 1)) is None


def test_what_cannot_be_stepped_is_an_error_that_says_why() -> None:
    skipped = Row(Job("shoal serial", "E-v0", 8), {}, Figures(), "EnvRaised: no map")
    with pytest.raises(ConfigError, match=r"EnvRaised: no map.*shoal check E-v0"):
        conclude("E-v0", 2, Unprobed("why"), [skipped])


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "advise", functools.partial(advise, rounds=1))


@pytest.mark.usefixtures("_once")
def test_it_measures_and_recommends_a_line_that_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "plot.png"
    asked = ["advise", "CartPole-v1", "--n-envs", "4", "--seconds", "0.05", "--plot", str(plot)]
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert out.startswith("CartPole-v1 on ")
    table, drawn, compared = out.split("\n\n")[1:4]
    first_words = [line.split()[0] for line in table.splitlines()]
    assert first_words[0] == "backend"
    assert set(first_words[1:]) == {BOUND, "serial", "process", "hybrid"}
    assert drawn.startswith("steps/s, 4 environments")
    assert compared.split()[:2] == ["simulated", "(serial)"]
    made: dict[str, Any] = {"shoal": shoal}
    exec(out.splitlines()[-1].strip(), made)
    made["envs"].close()
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("_once")
def test_json_holds_all_that_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advising, "_worth_trying", lambda *_: [("shoal serial", 1)])
    assert main(["advise", "CartPole-v1", "--n-envs", "2", "--seconds", "0.02", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["probe"]["step_s"] > 0
    assert told["recommended"] == told["rows"][0]
    assert told["rows"][0]["backend"] == "serial"
    assert told["rows"][0]["steps_per_s"] > 0
    assert told["code"].startswith("envs = shoal.make('CartPole-v1'")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--seconds", "0"], "above zero"),
        (["--n-envs", "0"], "at least 1"),
        (["--plot", "nowhere/plot.png"], "no folder 'nowhere'"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "CartPole-v1", *more]) == 2
    assert says in capsys.readouterr().err


def test_an_unknown_environment_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "CartPol-v1"]) == 2
    assert "Did you mean 'CartPole-v1'?" in capsys.readouterr().err


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'pip install "shoal-rl\[train\]"'):
        check_plot("plot.png")


COUNTS = (2, 8, 16, 32)
MEASURED = [
    *(row(BOUND, num_envs, 100.0) for num_envs in COUNTS),
    *(row("serial", num_envs, 50.0 + num_envs, 1) for num_envs in COUNTS),
    *(row("process", num_envs, 2.0 * num_envs, 2) for num_envs in COUNTS),
    *(row("process", num_envs, 1.0 * num_envs, 16) for num_envs in COUNTS),
    Row(Job("shoal thread", "E-v0", 64), {}, Figures(), "no such thing"),
]


def test_a_plot_has_a_line_for_each_contestant_with_its_best_points() -> None:
    (axes,) = figure_of("E-v0", MEASURED).axes
    drawn = {line.get_label(): line for line in axes.get_lines()}
    points = {label: [tuple(one) for one in line.get_xydata()] for label, line in drawn.items()}
    assert points == {
        BOUND: [(2, 100), (8, 100), (16, 100), (32, 100)],
        "serial": [(2, 52), (8, 58), (16, 66), (32, 82)],
        "process": [(2, 4), (8, 16), (16, 32), (32, 64)],
    }
    assert drawn[BOUND].get_linestyle() == "-."
    assert drawn[BOUND].get_marker() == "None", "the bound is a line, and nobody's setting"
    assert len({line.get_color() for line in drawn.values()}) == len(drawn)
    told = [text.get_text() for text in axes.get_legend().get_texts()]
    assert told == [BOUND, "serial", "process"], "from top to bottom, as their lines end"


def test_a_plot_says_what_is_on_its_axes() -> None:
    (axes,) = figure_of("E-v0", MEASURED).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environments", "steps/s")
    assert (axes.get_title(), axes.get_xscale(), axes.get_ylim()[0]) == ("E-v0", "log", 0)
    assert list(axes.get_xticks()) == list(COUNTS), "each number that was tried, and no other"


@pytest.mark.parametrize(("ending", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_plot_is_written_as_its_file_is_called(
    tmp_path: Path, ending: str, begins: bytes
) -> None:
    draw("E-v0", MEASURED, str(tmp_path / f"plot.{ending}"))
    assert (tmp_path / f"plot.{ending}").read_bytes().startswith(begins)


def test_bars_are_as_long_as_what_was_measured_fastest_first() -> None:
    here = [row(BOUND, 8, 100.0), row("serial", 8, 25.0, 1), row("process", 8, 50.0)]
    title, *drawn = bars(here).splitlines()
    assert title == "steps/s, 8 environments"
    assert [line.split()[0] for line in drawn] == [BOUND, "process", "serial"]
    assert [line.count("█") for line in drawn] == [40, 20, 10]
    assert [line.split()[-1] for line in drawn] == ["100", "50", "25"]


def test_bars_of_all_numbers_of_environments_have_one_scale() -> None:
    drawn = bars([row("serial", 2, 25.0, 1), row("serial", 8, 100.0, 1)]).splitlines()
    assert [line.count("█") for line in drawn] == [0, 10, 0, 40]
