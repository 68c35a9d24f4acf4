"""Do the benchmarks step what they say, and do reports say what the records hold?"""

from __future__ import annotations

import json
import pickle
import re
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import needs, plan, plots, report, run, targets
from benchmarks.simulator import Remote
from benchmarks.training import report as training_report
from benchmarks.training import task as training
from benchmarks.workloads import WORKLOADS, Workload
from shoal.errors import ConfigError
from shoal.measure import BOUND, Course, Figures, Job, Machine, Outcome, Record, claim, summarise
from shoal.measure.fingerprint import checked_out
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


def test_a_simulator_ends_with_its_environment_even_if_others_have_its_socket() -> None:
    env = Remote()
    with env.connection.dup():  # as in a process that was forked meanwhile
        env.reset(seed=0)
        env.step(0)
        assert env.server.poll() is None
        env.close()
        assert env.server.returncode == 0
    env.close()


def test_a_simulator_that_has_died_is_told_and_leaves_nothing() -> None:
    env = Remote()
    env.reset(seed=0)
    env.server.kill()
    env.server.wait()
    with pytest.raises(ConnectionError, match="the simulator has ended"):
        env.step(0)
    env.close()


KILLED = """
import os, signal
from benchmarks.simulator import Remote

envs = [Remote(), Remote()]
for env in envs:
    env.reset(seed=0)
    env.step(0)
print("stepped", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_simulators_end_when_their_process_is_killed() -> None:
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=plan.ROOT) as process:
        assert process.stdout is not None
        # Simulators inherit the pipe: it ends when the last of them has.
        assert process.stdout.read() == b"stepped\n"
    assert process.returncode == -signal.SIGKILL


def test_a_seed_decides_how_long_a_simulator_takes() -> None:
    env = Remote()
    env.reset(seed=3)
    expected = np.random.default_rng()
    expected.bit_generator.state = env.np_random.bit_generator.state
    env.step(0)
    expected.exponential(1e-3)
    assert expected.bit_generator.state == env.np_random.bit_generator.state
    env.close()


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


def asked(cores: int, monkeypatch: pytest.MonkeyPatch, full: bool = False) -> list[Job]:
    """Everything that targets have measured on a machine of so many cores."""
    for module in (plan, needs):
        monkeypatch.setattr(module, "usable_cores", lambda: cores)
    return [job for group in targets.groups(full, 0.1) for job in group]


def at(jobs: list[Job], workload: str, num_envs: int) -> set[str]:
    place = (WORKLOADS[workload].env, num_envs)
    return {job.contestant for job in jobs if job.place == place}


@pytest.mark.parametrize("cores", [2, 16])
def test_targets_have_measured_whom_they_name(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = asked(cores, monkeypatch)
    both = {"tianshou first-ready", "pufferlib mp first-ready"}
    assert at(jobs, "cartpole", 64) >= {"tianshou shmem", "torchrl parallel", "sb3 subproc"}
    assert at(jobs, "pixels-84", 64) >= {"gymnasium sync views", "gymnasium async views"}
    assert at(jobs, "uneven", 32) >= both
    for workload in ("waiting", "socket"):
        assert at(jobs, workload, 32) >= {*both, "sb3 subproc", "gymnasium async"}
    for workload in ("work-50us", "work-500us"):
        for num_envs in (64, 256):
            named = {BOUND, "shoal two groups", "shoal first-ready", "pufferlib mp first-ready"}
            assert at(jobs, workload, num_envs) >= named


def test_whoever_is_named_is_met_even_if_few_rivals_are_asked_for() -> None:
    few = [job for group in needs.groups(False, 0.1, ["gymnasium sync"]) for job in group]
    assert at(few, "waiting", 32) >= {"sb3 subproc", "tianshou first-ready"}


def test_workers_of_rivals_are_watched_in_pauses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = [job for job in asked(2, monkeypatch) if job.pause_s]
    assert {job.contestant for job in paused} == {*needs.GROWING, *needs.PAUSING_RIVALS}
    assert {job.place for job in paused} == {(WORKLOADS["pauses"].env, 8)}


@pytest.mark.parametrize(
    ("full", "free_mb", "counts"),
    [(False, 16e3, {8}), (True, 16e3, {8, 64}), (True, 8e3, {8}), (True, None, {8})],
)
def test_the_largest_start_is_asked_for_in_full_and_where_memory_allows(
    full: bool, free_mb: float | None, counts: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "free_memory_mb", lambda: free_mb)
    jobs = asked(2, monkeypatch, full)
    assert {job.num_envs for job in jobs if job.contestant == "sb3 subproc default"} == counts


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
    assert plan.begin(["some"], "any").machine.packages["agilerl"] == "1.2"
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


def test_memory_is_shown_at_each_number_of_environments() -> None:
    several = [
        outcome("shoal process", 9.0, workload, num_envs=num_envs, total_mb=10.0 * num_envs)
        for workload, num_envs in (("empty", 8), ("cartpole", 64), ("cartpole", 8))
    ]
    with_cartpole, without = report.markdown(record(*several)), report.markdown(record(several[0]))
    shown = with_cartpole.partition("## Start, memory and descriptors\n\n")[2]
    title, row = "### cartpole, {} environments\n", "| shoal process | – | – | – | {}.00 | – |"
    expected = [one for num in (8, 64) for one in (title.format(num), row.format(10 * num))]
    places = [shown.find(one) for one in expected]
    assert -1 not in places
    assert places == sorted(places)
    assert "empty" not in shown
    assert "### empty, 8 environments" in without


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
    slow = "sb3 subproc default"
    missing = f"{slow} with 64, gymnasium async spawn with 8, {slow} with 8"
    assert f"{said} 0.1 | met (not measured: {missing}) | 64 envs: shoal auto" in text
    starts += [a_start("shoal auto", 8, 1.0), a_start("sb3 subproc default", 8, 4.0)]
    starts += [a_start("gymnasium async spawn", 8, 10.0), a_start(slow, 64, 100.0)]
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


def test_some_of_the_targets_are_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(targets, "measure", lambda record, groups, *_, **__: seen.extend(groups))
    assert targets.main(["--only", "pauses", "starts", "--out", str(tmp_path)]) == 0
    kinds = {plan.name_of(job.env) if job.duration_s else "starts" for one in seen for job in one}
    assert kinds == {"pauses", "starts"}
    with pytest.raises(SystemExit):  # which another command measures
        targets.main(["--only", "gameboy-4", "--out", str(tmp_path)])
    assert "invalid choice: 'gameboy-4'" in capsys.readouterr().err


def test_targets_are_read_from_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "record.json"
    file.write_text(RECORD.to_json())
    assert targets.main(["--from", str(file)]) == 0
    assert "| auto to the best rival, everywhere | ≥ 1 | 2 | met (" in capsys.readouterr().out


def test_ratios_are_of_one_record_each() -> None:
    """Round 0 of one record and round 0 of another were not measured together."""
    slow_day = record(outcome(BOUND, 9.0), outcome("shoal auto", 3.0), outcome("sb3 dummy", 2.0))
    good_day = record(outcome(BOUND, 90.0), outcome("shoal auto", 10.0), outcome("sb3 dummy", 8.0))
    auto = next(one for one in targets.TARGETS if one.says == "auto to the best rival, everywhere")
    text = targets.markdown([slow_day, good_day])
    where = "cartpole, 8 envs: shoal auto to sb3 dummy"
    assert f"- **{auto.says}**: {where} 1.5; {where} 1.25" in text


def test_records_of_machines_with_other_cores_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("small.json", "large.json")]
    for file, cores in zip(files, (2, 16), strict=True):
        file.write_text(replace(RECORD, machine=replace(MACHINE, cores=cores)).to_json())
    with pytest.raises(ConfigError) as refused:
        targets.main(["--from", *map(str, files)])
    for part in (
        "the records are of different machines",
        "--from: expected one number of cores",
        f"got {files[0]} of 2, {files[1]} of 16",
        "Give those of one machine at a time.",
    ):
        assert part in str(refused.value)


PRECISE = record(
    *(outcome(name, 1234567.891, "empty") for name in (BOUND, "shoal auto", "gymnasium sync"))
)


def test_targets_read_from_a_file_are_what_was_written_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "some.json"
    targets.write(PRECISE, file)
    assert targets.main(["--from", str(file)]) == 0
    assert capsys.readouterr().out == file.with_suffix(".md").read_text()


def test_a_report_written_again_is_the_same(tmp_path: Path) -> None:
    file = claim(tmp_path, "some", PRECISE.to_json())
    written = report.write(file).read_text()
    assert report.main([str(file)]) == 0
    assert file.with_suffix(".md").read_text() == written
    assert "1,234,570" in written


def test_a_report_written_again_keeps_the_name_of_its_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "python -m benchmarks.targets"
    told = json.dumps({"figures": []})
    texts = PRECISE.to_json(), replace(PRECISE, asked=command).to_json(), told
    for name, text in zip(("any", "other", "third"), texts, strict=True):
        claim(tmp_path, name, text)
    assert report.main([str(path) for path in sorted(tmp_path.glob("*.json"))]) == 0
    said = capsys.readouterr().out
    assert "other.json: left to `python -m benchmarks.targets --from`" in said
    assert "third.json: figures without a report" in said
    assert {path.name for path in tmp_path.glob("*.md")} == {"any.md"}


REPORTS = sorted(plan.RESULTS.glob("*.md")) + sorted(plan.RESULTS.glob("gameboy/*.md"))
PICTURE = re.compile(r"!\[.*\]\((.*\.svg)\)")


def test_there_are_reports_to_be_looked_at() -> None:
    assert len(REPORTS) > 5


@pytest.mark.parametrize("kept", REPORTS, ids=lambda path: path.stem)
def test_a_report_is_what_its_record_gives_now(kept: Path) -> None:
    file = kept.with_suffix(".json")
    text = file.read_text()
    if "answers" in json.loads(text):
        expected = training_report.markdown(training.Record.from_json(text))
    elif "benchmarks.targets" in json.loads(text)["asked"]:
        expected = targets.markdown([Record.from_json(text)])
    else:
        expected = report.of_file(file)
    assert kept.read_text() == expected


def test_every_picture_is_shown_in_a_report() -> None:
    shown = [path.parent / name for path in REPORTS for name in PICTURE.findall(path.read_text())]
    assert sorted(shown) == sorted(plan.RESULTS.rglob("*.svg"))


def run_once(folder: Path, *more: str) -> None:
    arguments = ["--workloads", "empty", "--env-counts", "1", "2", "--repeats", "1", "--no-starts"]
    arguments += ["--seconds", "0.01", "--contestants", "shoal serial", "--out", str(folder)]
    assert run.main([*arguments, *more]) == 0


def test_a_second_run_of_the_day_leaves_the_first_as_it_was(tmp_path: Path) -> None:
    run_once(tmp_path)
    (first,) = tmp_path.glob("*.json")
    before = first.read_text(), first.with_suffix(".md").read_text()
    run_once(tmp_path)
    assert (first.read_text(), first.with_suffix(".md").read_text()) == before
    assert len([*tmp_path.glob("*.json")]) == len([*tmp_path.glob("*.md")]) == 2


def test_report_and_pictures_are_named_like_their_record(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run_once(tmp_path)
    run_once(tmp_path)
    for file in tmp_path.glob("*.json"):
        picture = f"{file.stem}-empty"
        assert (tmp_path / f"{picture}.svg").exists()
        assert f"![{picture}]({picture}.svg)" in file.with_suffix(".md").read_text()


def test_records_are_named_by_what_was_measured(tmp_path: Path) -> None:
    run_once(tmp_path, "--name", "mine")
    assert [path.name.partition("-")[0] for path in tmp_path.glob("*.json")] == ["mine"]
    assert run.parse([]).name == "bench"
    assert run.parse(["--full"]).name == "bench-full"
    assert run.parse(["--workloads", "pixels-84", "halfcheetah"]).name == "pixels-84-halfcheetah"
    assert run.parse(["--workloads", *WORKLOADS]).name == "bench"


def test_a_name_that_no_file_can_have_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["--name", "../mine"])
    assert "'../mine' cannot be part of a file's name" in capsys.readouterr().err


def test_figures_of_game_boys_do_not_overwrite_each_other(tmp_path: Path) -> None:
    pytest.importorskip("pyboy")
    from benchmarks import gameboy

    files = [gameboy.keep(record(), "speed", [{"rate": rate}], tmp_path) for rate in (1.0, 2.0)]
    kept = [json.loads(file.read_text())["figures"] for file in files]
    assert kept == [[{"rate": 1.0}], [{"rate": 2.0}]]
    assert all(file.name.startswith("speed-a-cpu-2cores-2026-01-02") for file in files)


@pytest.mark.parametrize("command", ["run", "targets", "gameboy"])
def test_a_record_tells_commit_and_versions(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_COMMIT", "told")  # where these tests are no checkout
    if command == "run":
        run_once(tmp_path)
    elif command == "targets":
        monkeypatch.setattr(targets, "groups", lambda *given: iter([]))
        targets.main(["--out", str(tmp_path)])
    else:
        pytest.importorskip("pyboy")
        from benchmarks import gameboy

        asked = ["gameboy", "players", "--episodes", "1", "--episode-length", "2"]
        monkeypatch.setattr(sys, "argv", [*asked, "--out", str(tmp_path)])
        gameboy.main()
    (file,) = tmp_path.glob("*.json")
    machine = json.loads(file.read_text())["machine"]
    assert machine["commit"] == (checked_out(Path(run.__file__)) or "told")
    for package in ("numpy", "gymnasium", *(["pyboy"] if command == "gameboy" else [])):
        assert machine["packages"][package] == metadata.version(package)


def test_a_copy_without_a_commit_says_how_to_tell_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")  # where there is no git
    monkeypatch.delenv("SHOAL_COMMIT", raising=False)
    plan.begin(["some"], "any")
    assert "SHOAL_COMMIT=$(git describe" in capsys.readouterr().err
    monkeypatch.setenv("SHOAL_COMMIT", "0123456789")
    assert plan.begin(["some"], "any").machine.commit == "0123456789"
    assert capsys.readouterr().err == ""


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
