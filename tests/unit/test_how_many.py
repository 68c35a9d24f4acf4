"""Are workers, rollouts and batches measured side by side, once each, and drawn as measured?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import how_many
from benchmarks.how_many import (
    BATCHES,
    KINDS,
    ROLLOUTS,
    draw_training,
    draw_workers,
    left,
    training_lines,
    training_tasks,
    worker_jobs,
    worker_lines,
)
from benchmarks.training.task import Answer, Task
from benchmarks.training.task import Record as Training
from shoal.measure import BOUND, Figures, Job, Outcome, Record

HALF = {"stepping": 0.5, "inference": 0.2, "learning": 0.3}


def outcome(job: Job, rate: float, number: int = 0) -> Outcome:
    return Outcome(job, number, Figures(steps_per_s=rate))


def answer(task: Task, rate: float) -> Answer:
    return Answer(task, 0, {"steps_per_s": rate, **HALF})


def test_every_number_of_workers_has_its_bound() -> None:
    jobs = worker_jobs(0.1)
    assert len(set(jobs)) == len(jobs)
    bounds = {(job.env, job.num_workers) for job in jobs if job.contestant == BOUND}
    others = {(job.env, job.num_workers) for job in jobs if job.contestant != BOUND}
    assert bounds == others


def test_environments_that_wait_are_tried_with_threads_and_all_their_workers() -> None:
    waiting = [job for job in worker_jobs(0.1) if "waiting" in job.env]
    assert {"shoal thread", "shoal process"} <= {job.contestant for job in waiting}
    assert max(job.num_workers or 0 for job in waiting) == how_many.NUM_ENVS


def test_rollouts_are_compared_with_one_batch_size_and_batches_with_one_rollout() -> None:
    tasks = training_tasks(100)
    lines = {axis: training_lines([answer(task, 1.0) for task in tasks], axis) for axis in HELD}
    for axis, sizes in HELD.items():
        assert len(lines[axis]) == len(KINDS)
        for line in lines[axis].values():
            assert [size for size, _ in line["steps_per_s"]] == list(sizes)


HELD = {"rollout": ROLLOUTS, "batch_size": BATCHES}


def test_a_training_is_measured_over_two_updates_at_least() -> None:
    assert all(task.steps >= 2 * task.rollout for task in training_tasks(1))


def test_only_what_has_not_been_measured_is_left() -> None:
    assert list(left("ab", 2, [("a", 0), ("b", 1)])) == [("b", 0), ("a", 1)]
    assert list(left("ab", 1, [("a", 0), ("b", 0)])) == []


def test_a_run_that_was_broken_off_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was measured otherwise than is asked now does not count."""
    measured: list[tuple[Any, int]] = []
    breaks_off = [False] * 500 + [True, False, False]

    def run_job(job: Job, number: int) -> Outcome:
        measured.append((job, number))
        if breaks_off.pop():
            raise KeyboardInterrupt
        return outcome(job, 1.0, number)

    def run(task: Task, number: int) -> Answer:
        measured.append((task, number))
        return answer(task, 1.0)

    monkeypatch.setattr(how_many, "run_job", run_job)
    monkeypatch.setattr(how_many.training, "run", run)
    asked = ["--out", str(tmp_path / "out"), "--images", str(tmp_path / "images")]
    with pytest.raises(KeyboardInterrupt):
        how_many.main([*asked, "--repeats", "1"])
    assert how_many.main([*asked, "--repeats", "1"]) == 0
    jobs = worker_jobs(0.6)
    assert [job for job, _ in measured] == [*jobs[:3], *jobs[2:], *training_tasks(10_000)]
    assert len(list((tmp_path / "images").glob("how-many-*.svg"))) == 3
    measured.clear()
    how_many.main([*asked, "--repeats", "1"])
    assert measured == []
    how_many.main([*asked, "--repeats", "1", "--seconds", "0.1"])
    assert len(measured) == len(jobs)


def test_workers_are_drawn_as_they_were_measured() -> None:
    env = "benchmarks.workloads:cartpole"
    found = worker_lines(
        [
            outcome(Job(BOUND, env, 32, 2), 9.0),
            outcome(Job("shoal process", env, 32, 4), 5.0, 0),
            outcome(Job("shoal process", env, 32, 4), 7.0, 1),
            outcome(Job("shoal process", env, 32, 2), 4.0),
            Outcome(Job("shoal hybrid", env, 32, 2), 0, None, "no such thing"),
        ]
    )
    assert found == {"cartpole": {"bound": [(2, 9.0)], "process": [(2, 4.0), (4, 6.0)]}}


def test_pictures_of_the_same_record_are_the_same(tmp_path: Path) -> None:
    workers, trained = Record.begin(["test"]), Training.begin("how-many", ["test"])
    workers.outcomes = [outcome(job, 10.0 + (job.num_workers or 0)) for job in worker_jobs(0.1)]
    trained.answers = [answer(task, float(task.batch_size)) for task in training_tasks(1)]
    for name in ("one.svg", "other.svg"):
        draw_workers(workers.to_json(), tmp_path / f"workers-{name}")
        draw_training("batch_size", trained.to_json(), tmp_path / f"training-{name}")
    for kind, words in (("workers", ("bound", "thread")), ("training", ("stepping", "learning"))):
        one, other = (
            (tmp_path / f"{kind}-{name}").read_bytes() for name in ("one.svg", "other.svg")
        )
        assert one == other
        assert all(f"<!-- {word} -->".encode() in one for word in words)
