"""`shoal bench`, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli import main
from shoal.measure import BOUND, Figures, Job, Outcome, Record, bench, summarise
from shoal.measure.bench import OURS, conclude, installed_rivals, plan
from shoal.measure.plot import draw_each

TINY = ["--n-envs", "2", "--seconds", "0.02", "--repeats", "1"]


def test_it_ends_in_one_line_that_says_what_to_use(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    assert main(["bench", *TINY, "--json", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "CartPole-v1, 2 environments"
    for name in ("bound", *OURS):
        assert any(line.startswith(name) for line in lines), name
    assert lines[-1].startswith('Use shoal.make("CartPole-v1", num_envs=2')
    headers = next(number for number, line in enumerate(lines) if "descriptors" in line)
    assert "2 environments" in lines[headers - 1]
    taken = {line.split("  ")[0]: line for line in lines[headers + 1 : headers + 1 + len(OURS)]}
    assert taken.keys() == set(OURS)
    assert all(line.endswith(tuple("0123456789–")) for line in taken.values())
    outcomes = [Outcome.from_dict(one) for one in json.loads(file.read_text())["outcomes"]]
    assert {one.job.contestant for one in outcomes} == {BOUND, *OURS}


def test_a_report_is_written_with_figures_and_a_plot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same as the benchmark suite writes, of whatever environment it was."""
    monkeypatch.setattr(bench, "OURS", ("shoal serial",))
    asked = ["bench", "CartPole-v1", "--n-envs", "2", "3", "--seconds", "0.02", "--repeats", "1"]
    assert main([*asked, "--out", str(tmp_path / "new" / "folder")]) == 0
    figures, written = sorted((tmp_path / "new" / "folder").glob("*[!g]"))
    (plot,) = (tmp_path / "new" / "folder").glob("*.svg")
    assert str(written) in capsys.readouterr().out
    record = Record.from_json(figures.read_text())
    assert {one.job.num_envs for one in record.outcomes} == {2, 3}
    text = written.read_text()
    assert f"Regenerate: `shoal {' '.join(asked)}`" in text
    for line in ("## CartPole-v1", "### 2 environments", "### 3 environments", "## Start, memory"):
        assert f"\n{line}" in text
    assert f"![{plot.stem}]({plot.name})" in text
    assert plot.name == f"{written.stem}-CartPole-v1.svg"


def test_a_name_that_no_file_can_have_is_drawn_all_the_same(tmp_path: Path) -> None:
    record = Record.begin(["test"])
    jobs = [Job("shoal serial", "some.where:a/b", num_envs) for num_envs in (2, 8)]
    record.outcomes = [Outcome(job, 0, Figures(steps_per_s=1.0)) for job in jobs]
    assert draw_each(record, tmp_path, "stem") == ["stem-some.where-a-b.svg"]
    assert (tmp_path / "stem-some.where-a-b.svg").exists()


def test_an_environment_of_the_working_folder_is_found_and_its_failure_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here_only.py").write_text("def make():\n    raise OSError('no such simulator')\n")
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "here_only:make", *TINY]) == 1
    out = capsys.readouterr().out
    assert "not measured: shoal serial" in out
    assert "no such simulator" in out
    assert out.endswith("Nothing could be measured.\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["CartPol-v1"], "Did you mean 'CartPole-v1'?"),
        (["--n-envs", "0"], "--n-envs must be at least 1, got 0."),
        (["--repeats", "0"], "--repeats must be at least 1, got 0."),
        (["--seconds", "0"], "--seconds must be above zero, got 0."),
        (["--json", "no/such/folder/f.json"], "--json: there is no folder"),
        (["--out", __file__], "is a file, and a folder is needed."),
    ],
)
def test_wrong_input_is_explained_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["bench", *arguments]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_rivals_are_those_that_are_installed() -> None:
    names = installed_rivals()
    assert names[:2] == ["gymnasium sync", "gymnasium sync views"]
    assert not any(name.endswith(("spawn", "default")) for name in names)
    jobs = list(plan("CartPole-v1", 8, names, 0.1))
    assert jobs[0].contestant == BOUND
    assert {job.contestant for job in jobs} == {BOUND, *OURS, *names}


def rows(**rates: float):
    names = {
        "auto": "shoal auto",
        "serial": "shoal serial",
        "hybrid": "shoal hybrid",
        "sync": "gymnasium sync",
    }
    return summarise(
        Outcome(Job(names[name], "CartPole-v1", 8), 0, Figures(steps_per_s=rate))
        for name, rate in rates.items()
    )


def test_the_fastest_is_recommended_and_the_simplest_where_it_is_as_good() -> None:
    assert 'backend="hybrid"' in conclude(rows(serial=100.0, hybrid=200.0))
    assert 'backend="serial"' in conclude(rows(serial=100.0, hybrid=101.0))
    assert "num_envs=8):" in conclude(rows(auto=100.0, serial=102.0, hybrid=101.0))


@pytest.mark.parametrize(
    ("contestant", "num_workers", "how"),
    [
        ("shoal auto", None, ")"),
        ("shoal process", None, ', backend="process")'),
        ("shoal process", 15, ', backend="process", num_workers=15)'),
        (
            "shoal first-ready",
            15,
            ', backend="process", num_workers=15, batch_size=16) with send and recv',
        ),
    ],
)
def test_the_line_that_is_shown_is_the_setting_that_was_measured(
    contestant: str, num_workers: int | None, how: str
) -> None:
    job = Job(contestant, "CartPole-v1", 32, num_workers)
    said = conclude(summarise([Outcome(job, 0, Figures(steps_per_s=100.0))]))
    assert said == f'Use shoal.make("CartPole-v1", num_envs=32{how}: 100 steps/s.'


def test_what_starting_and_keeping_takes_is_shown_for_most_environments() -> None:
    taken = Figures(
        10.0, start_s=0.5, num_processes=3, worker_mb=20.0, total_mb=70.5, descriptors=9
    )
    many = Outcome(Job("shoal process", "CartPole-v1", 32), 0, taken)
    few = Outcome(Job("shoal serial", "CartPole-v1", 8), 0, taken)
    title, headers, line = bench.describe_footprints(summarise([few, many])).splitlines()
    assert "32 environments" in title
    assert headers.split("  ")[-1] == "descriptors"
    assert line.split() == ["shoal", "process", "500", "ms", "3", "20.00", "70.50", "9"]
    assert bench.describe_footprints([]) == ""


@pytest.mark.parametrize(("waits", "processes"), [(False, 2), (True, 8)])
def test_environments_that_wait_are_bounded_by_their_number(
    monkeypatch: pytest.MonkeyPatch, waits: bool, processes: int
) -> None:
    monkeypatch.setattr(bench, "usable_cores", lambda: 2)
    assert next(plan("CartPole-v1", 8, [], 0.1, waits)).num_workers == processes


def test_an_environment_that_waits_is_found_out(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    monkeypatch.chdir(tmp_path)
    assert (
        main(["bench", "sleepy:make", "--n-envs", "6", "--seconds", "0.02", "--repeats", "1"]) == 0
    )
    assert "bound ×6 (6 processes)" in capsys.readouterr().out


SLEEPY = """
import time
import gymnasium
import numpy as np

class Sleepy(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        time.sleep(0.005)
        return np.zeros(1, np.float32), 0.0, False, False, {}

make = Sleepy
"""


def test_a_faster_rival_is_not_kept_quiet() -> None:
    assert "gymnasium sync is faster here, by 2.00 times" in conclude(rows(serial=1.0, sync=2.0))
    assert "4.00 times gymnasium sync, the best rival" in conclude(rows(serial=4.0, sync=1.0))
