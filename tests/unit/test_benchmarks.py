"""Do the benchmarks step what they say, and do reports say what the records hold?"""

from __future__ import annotations

import pickle
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import needs, plan, plots, report, run, targets
from benchmarks.training import report as training_report
from benchmarks.training import task as training
from benchmarks.workloads import WORKLOADS, Workload
from shoal.measure import BOUND, Course, Figures, Job, Machine, Outcome, Record, summarise
from shoal.testing import check_env

MACHINE = Machine("A CPU", 2, 2, 4.0, "Linux", "CPython 3.11", {"numpy": "2"}, 0.5)


def record(*outcomes: Outcome) -> Record:
    return Record(MACHINE, "2026-01-02 03:04 UTC", "some command", list(outcomes))


def outcome(
    contestant: str, rate: float | None, workload: str = "cartpole", num_envs: int = 8, **more: Any
) -> Outcome:
    job = Job(contestant, WORKLOADS[workload].env, num_envs, more.pop("num_workers", None))
    return Outcome(job, more.pop("round", 0), Figures(steps_per_s=rate, **more))


# --- workloads ----------------------------------------------------------------------------------


ALONE = [workload for workload in WORKLOADS.values() if workload.plays == "one"]
SEVERAL = [workload for workload in WORKLOADS.values() if workload.plays != "one"]


@pytest.mark.parametrize("workload", ALONE, ids=lambda workload: workload.name)
def test_a_workload_keeps_the_contract_and_is_picklable(workload: Workload) -> None:
    if workload.name == "halfcheetah":
        pytest.importorskip("mujoco")
    if workload.name.startswith("gameboy"):
        pytest.importorskip("pyboy")
    course = Course.named(workload.env, 33)
    for factory in course.factories[:2]:
        rebuilt = pickle.loads(pickle.dumps(factory))  # rivals know no other way
        report = check_env(rebuilt, episodes=1, steps=5)
        assert report.ok, report


@pytest.mark.parametrize("workload", SEVERAL, ids=lambda workload: workload.name)
def test_a_workload_of_several_agents_keeps_pettingzoos_contract(workload: Workload) -> None:
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import api_test, parallel_api_test

    factory = pickle.loads(pickle.dumps(Course.named(workload.env, 1).factories[0]))
    test = parallel_api_test if workload.plays == "team" else api_test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what mpe2 and connect four are like is not ours
        test(factory(), num_cycles=60)


@pytest.mark.parametrize("workload", SEVERAL, ids=lambda workload: workload.name)
def test_several_agents_meet_only_those_who_know_them(workload: Workload) -> None:
    jobs = [*plan.jobs_at(workload, 4, plan.FIELD, 0.1)]
    kind = {"team": "shoal team", "turns": "shoal turns"}[workload.plays]
    ours = [job.contestant for job in jobs if job.contestant.startswith("shoal")]
    assert ours
    assert all(name.startswith(kind) for name in ours)
    assert {job.contestant for job in jobs} >= {BOUND, "pettingzoo loop"}
    alone = plan.jobs_at(WORKLOADS["cartpole"], 4, plan.FIELD, 0.1)
    assert not any("team" in job.contestant or "loop" in job.contestant for job in alone)


def test_one_environment_in_32_is_slow() -> None:
    factories = Course.named(WORKLOADS["one-slow"].env, 64).factories
    slow = [number for number, factory in enumerate(factories) if factory is factories[0]]
    assert slow == [0, 32]


def test_episodes_end_and_numeric_infos_are_there() -> None:
    env = Course.named(WORKLOADS["infos"].env, 1).factories[0]()
    env.reset(seed=0)
    ends = [env.step(0) for _ in range(1000)]
    assert [truncated for _, _, _, truncated, _ in ends].index(True) == 999
    assert len(ends[0][4]) == 5


# --- plans --------------------------------------------------------------------------------------


def test_everyone_meets_the_bound() -> None:
    jobs = list(plan.jobs_at(WORKLOADS["empty"], 8, plan.FIELD, 0.1))
    assert jobs[0].contestant == BOUND
    assert {job.place for job in jobs} == {jobs[0].place}
    assert "envpool" not in {job.contestant for job in jobs}, "native environments only"


def test_environments_that_wait_are_bounded_by_processes_not_cores() -> None:
    first = next(plan.jobs_at(WORKLOADS["waiting"], 32, [], 0.1))
    assert first.num_workers == 32


def test_threads_are_tried_with_one_for_each_environment_that_waits() -> None:
    for workload, expected in (("waiting", [None, 32]), ("empty", [None])):
        jobs = list(plan.jobs_at(WORKLOADS[workload], 32, ["shoal thread"], 0.1))[1:]
        assert [job.num_workers for job in jobs] == expected


@pytest.mark.parametrize("cores", [2, 16])
def test_every_target_has_what_it_reads(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, needs):
        monkeypatch.setattr(module, "usable_cores", lambda: cores)
    monkeypatch.setattr(needs, "find_spec", lambda name: True)
    # As in a run, each group has rounds of its own; a chosen number of workers is the fastest.
    outcomes = [
        Outcome(job, number, Figures(1.0 + (job.num_workers or 0), start_cpu_s=1.0, pause_cpu=0.0))
        for number, group in enumerate(targets.groups(False, 0.1))
        for job in group
    ]
    measured = targets.Measured(targets.summarise(outcomes), cores)
    for target in targets.TARGETS:
        assert list(target.read(measured)), target.says


def test_teams_are_left_out_where_nothing_for_them_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(needs, "find_spec", lambda name: None)
    kinds = {plan.name_of(job.env) for group in targets.groups(False, 0.1) for job in group}
    assert "cartpole" in kinds
    assert not kinds & {"spread", "connect-four"}


def test_pufferlib_is_met_with_as_many_workers_as_cores_and_with_one_fewer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (plan, needs):
        monkeypatch.setattr(module, "usable_cores", lambda: 2)
    outcomes = [
        Outcome(job, number, Figures(12.0 / (job.num_workers or 1)))
        for number, group in enumerate(targets.groups(False, 0.1))
        for job in group
    ]
    (target,) = (one for one in targets.TARGETS if "PufferLib with the same" in one.says)
    assert [
        (one.where, one.value)
        for one in target.read(targets.Measured(targets.summarise(outcomes), 2))
    ] == [
        ("cartpole, 64 envs: shoal process to pufferlib mp ×2", 2.0),
        ("cartpole, 64 envs: shoal process ×1 to pufferlib mp ×1", 1.0),
    ]


def test_a_record_tells_versions_of_other_interpreters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "ROOT", tmp_path)
    python = tmp_path / ".venv-agilerl" / "bin" / "python"
    told = (
        tmp_path / ".venv-agilerl" / "lib" / "python3" / "site-packages" / "agilerl-1.2.dist-info"
    )
    for folder in (python.parent, told):
        folder.mkdir(parents=True)
    python.touch()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: agilerl\nVersion: 1.2\n")
    assert plan.begin(["some"]).machine.packages["agilerl"] == "1.2"
    job = Job("agilerl async", WORKLOADS["spread"].env, 8)
    assert plan.where(job).python == str(python)
    assert plan.where(replace(job, contestant=BOUND)).python == sys.executable


# --- reports ------------------------------------------------------------------------------------

RECORD = record(
    outcome(BOUND, 1000.0, num_workers=2),
    outcome("shoal auto", 500.0, p50_s=0.002, p99_s=0.004, note="hybrid, 2 workers"),
    outcome("gymnasium sync", 250.0, cpu_s_per_million=3.0, total_mb=40.0, descriptors=0),
    outcome("shoal process", 100.0, workload="pauses", pause_cpu=0.005, wake_s=0.001),
    Outcome(Job("torchrl parallel", WORKLOADS["cartpole"].env, 8), 0, None, "not installed"),
    Outcome(
        Job("shoal process", WORKLOADS["cartpole"].env, 64, duration_s=0.0),
        0,
        Figures(start_s=0.5, start_cpu_s=0.75),
    ),
)


def test_a_report_says_of_which_commit_it_is_where_that_is_known() -> None:
    told = replace(MACHINE, commit="0123456789-dirty")
    assert "numpy 2; commit 0123456789-dirty; load 0.5" in report.machine_lines(told)
    assert "numpy 2; load 0.5" in report.machine_lines(MACHINE)
    told = replace(told, blas="openblas 0.3 Haswell")
    assert "; BLAS openblas 0.3 Haswell; commit 0123456789-dirty;" in report.machine_lines(told)


def test_a_report_says_what_the_record_holds() -> None:
    text = report.markdown(Record.from_json(RECORD.to_json()), ["picture.svg"])
    for part in (
        "# Benchmark, 2026-01-02 03:04 UTC",
        "A CPU, 2 usable cores of 2",
        "Regenerate: `some command`",
        "## cartpole: Gymnasium's CartPole-v1",
        "| shoal auto (hybrid, 2 workers) | 500 | 500 to 500 | 2.00× | 0.50 | – | 2 ms | 4 ms |",
        "Not measured: torchrl parallel: not installed.",
        "| shoal process | 8 | 0.50% | 1 ms |",
        "| shoal process | 64 | 500 ms | 750 ms |",
        "![picture](picture.svg)",
    ):
        assert part in text, part


def test_pictures_are_drawn_where_there_is_more_than_one_number_of_environments(
    tmp_path: Path,
) -> None:
    pytest.importorskip("matplotlib")
    more = [outcome(BOUND, 2000.0, num_envs=64), outcome("shoal auto", 900.0, num_envs=64)]
    drawn = plots.draw(record(*RECORD.outcomes, *more), tmp_path, "some")
    assert drawn == ["some-cartpole.svg"]
    once = (tmp_path / drawn[0]).read_text()
    assert once.startswith("<?xml")
    plots.draw(record(*RECORD.outcomes, *more), tmp_path, "some")
    assert (tmp_path / drawn[0]).read_text() == once


def test_a_contestant_has_one_line_and_the_highest_is_first() -> None:
    rates = {(8, 1): 5.0, (8, 2): 7.0, (64, 1): 9.0, (64, 2): 8.0}
    several = [
        outcome("pufferlib mp", rate, num_envs=num_envs, num_workers=num_workers)
        for (num_envs, num_workers), rate in rates.items()
    ]
    ours = [outcome("shoal auto", rate, num_envs=num) for num, rate in ((8, 6.0), (64, 20.0))]
    assert list(plots.lines(summarise([*several, *ours])).items()) == [
        ("shoal auto", [(8, 6.0), (64, 20.0)]),
        ("pufferlib mp", [(8, 7.0), (64, 9.0)]),
    ]


def a_start(contestant: str, num_envs: int, cpu_s: float) -> Outcome:
    job = Job(contestant, WORKLOADS["cartpole"].env, num_envs, duration_s=0.0)
    return Outcome(job, 0, Figures(start_s=cpu_s, start_cpu_s=cpu_s))


def test_starts_are_compared_where_both_were_measured() -> None:
    said = "| CPU of the start to that of rivals that do not fork the caller | ≤ 1 |"
    starts = [a_start("shoal auto", 64, 1.0), a_start("gymnasium async spawn", 64, 10.0)]
    text = targets.markdown([record(*starts)])
    assert f"{said} 0.1 | met (not measured: sb3 subproc default) | 64 envs: shoal auto" in text
    starts += [a_start("shoal auto", 8, 1.0), a_start("sb3 subproc default", 8, 4.0)]
    text = targets.markdown([record(*starts)])
    assert f"{said} 0.25 | met | 8 envs: shoal auto to sb3 subproc default |" in text


def test_targets_are_met_or_missed_by_so_much() -> None:
    text = targets.markdown([RECORD])
    assert "| auto to the best rival, everywhere | ≥ 1 | 2 | met (not measured: " in text
    assert "| CPU seconds to the first reset of 64 envs | ≤ 2 | 0.75 | met |" in text
    assert (
        "| auto to the best rival, empty steps, 8 envs and more | ≥ 2.5 | – | not measured |"
        in text
    )


def test_the_worst_reading_counts() -> None:
    worse = [outcome(BOUND, 9.0, "empty"), outcome("shoal auto", 1.0, "empty")]
    text = targets.markdown([record(*RECORD.outcomes, *worse, outcome("sb3 dummy", 2.0, "empty"))])
    assert "| auto to the best rival, everywhere | ≥ 1 | 0.5 | not met, off by 50% (" in text


def test_a_target_names_the_rivals_that_were_not_there() -> None:
    rates = {"shoal process": 10.0, "gymnasium async": 1.0, "sb3 subproc": 1.0}
    there = [outcome(name, rate, num_envs=64) for name, rate in rates.items()]
    asked = Job("torchrl parallel", WORKLOADS["cartpole"].env, 64)
    there.append(Outcome(asked, 0, None, "torchrl is not installed"))
    bound = outcome(BOUND, 99.0, num_envs=64)
    missing = "tianshou shmem, tianshou first-ready, torchrl parallel"
    assert f"| ≥ 6 | 10 | met (not measured: {missing}) |" in targets.markdown(
        [record(bound, *there)]
    )
    rest = [outcome(name, 2.0, num_envs=64) for name in missing.split(", ")]
    assert "| ≥ 6 | 5 | not met, off by 17% |" in targets.markdown([record(bound, *there, *rest)])


# --- the command --------------------------------------------------------------------------------


def test_a_run_leaves_a_record_and_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--workloads", "empty", "--env-counts", "2", "--repeats", "1", "--no-starts"]
    more = ["--seconds", "0.02", "--contestants", "shoal serial", "envpool", "--out", str(tmp_path)]
    assert run.main([*arguments, *more]) == 0
    assert "shoal serial" in capsys.readouterr().out
    (file,) = tmp_path.glob("*.json")
    kept = Record.from_json(file.read_text())
    assert [one.job.contestant for one in kept.outcomes] == [BOUND, "shoal serial"]
    assert file.with_suffix(".md").exists()
    assert str(tmp_path) not in file.read_text()


def test_a_run_that_is_broken_off_leaves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "write", interrupt)
    arguments = ["--workloads", "empty", "--env-counts", "2", "--repeats", "1", "--no-starts"]
    more = ["--seconds", "0.01", "--contestants", "shoal serial", "--out", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        run.main([*arguments, *more])
    (file,) = tmp_path.glob("*.json")
    assert len(Record.from_json(file.read_text()).outcomes) == 2


def test_targets_are_read_from_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "record.json"
    file.write_text(RECORD.to_json())
    assert targets.main(["--from", str(file)]) == 0
    assert "| auto to the best rival, everywhere | ≥ 1 | 2 | met (" in capsys.readouterr().out


PRECISE = record(
    *(outcome(name, 1234567.891, "empty") for name in (BOUND, "shoal auto", "gymnasium sync"))
)


def test_targets_read_from_a_file_are_what_was_written_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets.write(PRECISE, tmp_path)
    (file,) = tmp_path.glob("targets-*.json")
    assert targets.main(["--from", str(file)]) == 0
    assert capsys.readouterr().out == file.with_suffix(".md").read_text()


def test_a_report_written_again_is_the_same(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    written = report.write(PRECISE, first)
    kept = Record.from_json(written.with_suffix(".json").read_text())
    assert report.write(kept, again).read_text() == written.read_text()
    assert "1,234,570" in written.read_text()


def test_a_report_written_again_keeps_the_name_of_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for stem in ("teams-machine", "targets-machine"):
        (tmp_path / f"{stem}.json").write_text(PRECISE.to_json())
    assert report.main([str(path) for path in sorted(tmp_path.glob("*.json"))]) == 0
    assert "benchmarks.targets --from" in capsys.readouterr().out
    assert {path.name for path in tmp_path.glob("*.md")} == {"teams-machine.md"}


@pytest.mark.parametrize("name", [path.name for path in sorted(plan.RESULTS.glob("*.json"))])
def test_records_of_other_days_can_be_read(name: str) -> None:
    text = (plan.RESULTS / name).read_text()
    if name.startswith("train-"):
        kept = training.Record.from_json(text)
        assert training_report.markdown(kept).startswith("# ")
        return
    read = targets.markdown([Record.from_json(text)]) if name.startswith("targets") else None
    assert (read or report.markdown(Record.from_json(text))).startswith("# ")


def test_what_is_measured_is_kept_after_each_group() -> None:
    kept: list[int] = []
    measured = record()
    job = Job("shoal serial", WORKLOADS["empty"].env, 2, duration_s=0.01, warmup_s=0.0)
    run.measure(measured, [[job], [job]], 1, keep=lambda: kept.append(len(measured.outcomes)))
    assert kept == [1, 2]


def test_unknown_names_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--workloads", "cartpol"])
    assert "Did you mean 'cartpole'?" in capsys.readouterr().err
