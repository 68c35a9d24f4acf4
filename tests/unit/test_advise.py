"""Does `shoal advise` try what makes sense, and recommend what follows from it?"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli import advise as command
from shoal.cli import main
from shoal.engine.probe import Probe, Unprobed
from shoal.errors import ConfigError
from shoal.measure import BOUND, Figures, Job, Row
from shoal.measure import advise as advising
from shoal.measure.advise import (
    advise,
    conclude,
    line_of_code,
    recommend,
    settings,
    usual_counts,
)
from shoal.measure.plot import check_plot, draw

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
    assert usual_counts(CHEAP, 2) == (2, 8, 32)
    assert usual_counts(CHEAP, 1) == (2, 4, 16)
    assert max(usual_counts(replace(CHEAP, step_s=0.1, cpu_s=0.1), 2)) == 8
    assert max(usual_counts(SLEEPER, 1)) == 32
    assert max(usual_counts(replace(CHEAP, memory_mb=1e9), 2)) == 2
    assert usual_counts(Unprobed("why"), 2) == (2, 8, 32)


# --- what follows ----------------------------------------------------------------------------


def test_the_fastest_is_recommended() -> None:
    rows = [row("serial", 8, 50.0), row("process", 8, 20.0), row("hybrid", 8, 110.0)]
    assert recommend(rows) is rows[2]


def test_isolation_is_worth_a_little_speed() -> None:
    rows = [row("serial", 8, 50.0), row("process", 8, 100.0), row("hybrid", 8, 105.0)]
    assert recommend(rows) is rows[1]


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


def test_simulated_and_true_parallelism_are_compared() -> None:
    serial = row("serial", 8, 50.0, 1, cpu_s_per_million=20_000.0, total_mb=60.0, start_s=0.3)
    process = row("process", 8, 90.0, 2, cpu_s_per_million=22_000.0, total_mb=95.0, start_s=0.6)
    said = sentences(2, SLOW, serial, process)
    assert "True parallelism (process) is 1.80 times as fast as simulated (serial)" in said
    assert "90 against 50 steps/s" in said
    assert "2.0 against 1.0 cores at work, 95 against 60 MB, 0.60 against 0.30 s to start" in said


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
    assert "more workers than cores pay" in sentences(2, SLEEPER, *rows)


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
    for word in ("backend", "of the bound", "serial", "process", "bound", "True parallelism"):
        assert word in out
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


def test_a_plot_shows_each_backend_and_the_bound(tmp_path: Path) -> None:
    rows = [row(name, n, n * 10.0) for name in (BOUND, "serial", "process") for n in (2, 8)]
    draw("E-v0", rows, str(tmp_path / "plot.svg"))
    assert "svg" in (tmp_path / "plot.svg").read_text()[:400]
