"""Does the benchmark of whole training measure what it says, and say what it has found?"""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import many_envs, train
from benchmarks.plan import RESULTS, ROOT
from benchmarks.training import ablate, contest, floor, gpu, ours, plan, wallclock
from benchmarks.training.report import markdown
from benchmarks.training.task import Answer, Record, Task
from benchmarks.training.watch import Moment, Pace, Threshold
from benchmarks.workloads import WORKLOADS
from shoal.errors import ConfigError
from shoal.measure import Figures, Job, Machine, Outcome, fingerprint
from shoal.measure import Record as Stepping
from shoal.rollout.play import Alone
from shoal.training.config import PPORun
from shoal.training.settings import load_yaml

MACHINE = Machine("A CPU", 2, 2, 4.0, "Linux", "CPython 3.11", {"torch": "2"}, 0.5)
TASK = Task("shoal", "CartPole-v1", 8, 32, 256, 20, steps=1000)


def record(kind: str, *answers: Answer) -> Record:
    return Record(kind, MACHINE, "2026-01-02 03:04 UTC", "some command", list(answers))


def answer(contestant: str, number: int = 0, note: str = "", **more: Any) -> Answer:
    names = {key: more.pop(key) for key in list(more) if key in Task.__dataclass_fields__}
    task = Task(**{**json.loads(TASK.to_json()), **names, "contestant": contestant})
    return Answer(task, number, more, note)


def test_a_record_says_what_it_was_made_by() -> None:
    begun = Record.begin("against", ["make", "bench-train"])
    machine, now = Record.from_json(begun.to_json()).machine, fingerprint()
    told = machine.commit, machine.blas, machine.processor
    assert told == (now.commit, now.blas, now.processor)
    assert now.commit or not (ROOT / ".git").exists()
    assert machine.packages["torch"] == importlib.metadata.version("torch")


# --- plans --------------------------------------------------------------------------------------


def test_everyone_has_the_same_training() -> None:
    for group in plan.against(["CartPole-v1", "HalfCheetah-v5"], (8, 32), ["shoal", *plan.SB3], 9):
        shapes = {(one.env, one.n_envs, one.n_steps, one.batch_size) for one in group}
        assert len(shapes) == 1
        assert len(group) == 5, "Shoal, and Stable-Baselines3 in four ways"


def test_a_rollout_is_equally_long_for_one_environment_and_for_many() -> None:
    for group in plan.speedup(
        ["cheap", "heavy"], (1, 4, 8, 16), ["shoal", "shoal, overlap"], 2048, 9
    ):
        assert {one.rollout for one in group} == {2048}


def test_shoal_is_told_what_the_task_says() -> None:
    config = ours.config_of(TASK)
    told = (config.envs.n_envs, config.ppo.n_steps, config.ppo.batch_size, config.ppo.n_epochs)
    assert told == (8, 32, 256, 20)
    assert (config.network.hidden_sizes, config.network.activation) == ((64, 64), "tanh")
    towards = plan.threshold(["shoal"])[0][0]
    assert ours.config_of(towards).ppo.gae_lambda == 0.8, "as the file in configs says"


# --- watching -----------------------------------------------------------------------------------


def clock(*moments: float) -> Any:
    ticking: Iterator[float] = iter(moments)
    return lambda: next(ticking)


def test_the_first_update_is_start_up() -> None:
    watch = Pace(TASK, 10.0, clock(14.0, 15.0, 16.0))
    assert not watch.mark(Moment(500, {"learning": 1.0}))
    assert not watch.mark(Moment(1000, {"learning": 0.25}))
    assert watch.mark(Moment(1500, {"learning": 0.75}))
    found = watch.numbers
    assert (found["start_s"], found["steps_per_s"], found["update_s"]) == (4.0, 500.0, 1.0)
    assert (found["whole_s"], found["whole_steps"]) == (6.0, 1500)
    assert found["learning"] == 0.5, "of the time that was measured, weighted by how long it took"


def test_a_threshold_is_reached_by_a_hundred_episodes_only() -> None:
    task = plan.threshold(["shoal"])[0][0]
    watch = Threshold(task, 10.0, clock(11.0, 12.0, 13.0))
    assert not watch.mark(Moment(256, num_episodes=99, mean_return=500.0))
    assert not watch.mark(Moment(512, num_episodes=100, mean_return=474.9))
    assert watch.mark(Moment(768, num_episodes=101, mean_return=475.0))
    assert (watch.numbers["reached_s"], watch.numbers["reached_steps"]) == (3.0, 768)


def test_who_never_gets_there_is_stopped_and_not_counted() -> None:
    task = plan.threshold(["shoal"])[0][0]
    watch = Threshold(task, 0.0, clock(1.0))
    assert watch.mark(Moment(task.steps, num_episodes=200, mean_return=300.0))
    assert "reached_s" not in watch.numbers
    assert watch.numbers["best"] == 300.0


# --- the floor ----------------------------------------------------------------------------------


def test_the_floor_is_made_of_the_products_of_the_agents_own_network() -> None:
    agent = floor.agent_of(plan.PIXELS.env)
    acting = [str(one.operation.overloadpacket) for one in floor.products(agent, 2, learns=False)]
    assert acting.count("aten.convolution") == 3
    assert acting.count("aten.addmm") == 1 + 2 * 3, "one behind them, and two stacks of three"
    learning = [str(one.operation.overloadpacket) for one in floor.products(agent, 2, learns=True)]
    assert learning.count("aten.convolution_backward") == 3
    assert learning.count("aten.mm") == 2 * 7, "of weights and of inputs"


def test_products_keep_their_shapes_on_random_data() -> None:
    call = floor.products(floor.agent_of("CartPole-v1"), 5, learns=False)[0]
    bias, seen, weights = (one.random("cpu", torch.float32) for one in call.arguments)
    assert (seen.shape, weights.shape) == ((5, 4), (4, 64))
    assert call.operation(bias, seen, weights).shape == (5, 64)
    assert seen.std() > 0


def test_what_a_gpu_did_is_told_apart() -> None:
    class Event:
        def __init__(self, name: str, taken_us: float) -> None:
            self.name, self.self_device_time_total = name, taken_us

    events = [Event("sgemm", 2e6), Event("Memcpy HtoD (Pageable -> Device)", 1e6)]
    assert gpu.sums_s(events) == {"kernels": 2.0, "copies": 1.0}
    assert gpu.sums_s([]) == {}, "where nothing was seen nothing is claimed"
    assert gpu.percentages("40\n60\n[N/A]\n") == [40.0, 60.0]


# --- tables -------------------------------------------------------------------------------------


def pace(contestant: str, rate: float, number: int, **more: Any) -> Answer:
    found = {"start_s": 2.0, "whole_s": 3.0, "whole_steps": rate + 256.0, "update_s": 0.1}
    return answer(contestant, number, steps_per_s=rate, **found, **more)


def test_ratios_are_of_the_same_round_and_to_the_best_of_the_rivals() -> None:
    rates = {"shoal": (900.0, 330.0), "sb3 dummy": (300.0, 100.0), "sb3 subproc": (50.0, 40.0)}
    answers = [pace(name, rate, k) for name, both in rates.items() for k, rate in enumerate(both)]
    text = markdown(Record.from_json(record("against", *answers).to_json()))
    found = "615 (shoal) | 200 (sb3 dummy) | 3.15× | 3.00× to 3.30× | ≥ 3 | met"
    assert f"| CartPole-v1, 8 environments | {found} |" in text
    assert "Regenerate: `some command`" in text


def test_a_ratio_that_is_too_low_is_said_to_be() -> None:
    ours = pace("shoal", 150.0, 0, cpu_s_per_million=50.0)
    theirs = pace("sb3 dummy", 100.0, 0, cpu_s_per_million=125.0)
    text = markdown(record("against", ours, theirs))
    assert "| ≥ 3 | not met, off by 50% | 2.50× |" in text


def test_start_up_counts_in_a_whole_run() -> None:
    text = markdown(record("against", pace("shoal", 1000.0, 0)))
    assert "| 101.74 s |" in text, "2 s for the first 256 steps, and 99,744 steps at 1000 a second"


def test_the_speedup_is_over_one_environment() -> None:
    rates = {1: 100.0, 8: 350.0}
    answers = [pace("shoal", rate, 0, n_envs=n, note=f"n{n}") for n, rate in rates.items()]
    text = markdown(record("speedup", *answers))
    assert "| 8 | n8 | 350 | 350 to 350 | 3.50× | 3.50× to 3.50× | 4.00× |" in text


def test_who_did_not_get_there_is_named() -> None:
    answers = [
        answer("shoal", 0, threshold=475.0, reached_s=4.0, reached_steps=5e4, start_s=1.0),
        answer("sb3 dummy", 0, seed=7, threshold=475.0, best=300.0, start_s=1.0, whole_s=9.0),
    ]
    text = markdown(record("threshold", *answers))
    assert "| shoal | 1 of 1 | 4.00 s |" in text
    assert "| sb3 dummy | 0 of 1 | – |" in text
    assert "- sb3 dummy, seed 7: never; 300.0 at best" in text


def test_who_was_skipped_is_named() -> None:
    skipped = Answer(TASK, 0, {}, skipped="ImportError: no such thing")
    text = markdown(record("against", skipped))
    assert "Not measured: shoal, 8 environments: ImportError: no such thing" in text


# --- the command --------------------------------------------------------------------------------


def kept(folder: Path) -> Record:
    (file,) = folder.glob("*.json")
    assert file.with_suffix(".md").exists()
    assert str(folder) not in file.read_text()
    return Record.from_json(file.read_text())


def test_training_is_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    arguments = ["speedup", "--envs", "cheap", "--n-envs", "1", "2", "--rollout", "64"]
    arguments += ["--contestants", "shoal"]
    more = ["--steps", "64", "--repeats", "1", "--out", str(tmp_path)]
    assert train.main([*arguments, *more]) == 0
    answers = kept(tmp_path).answers
    assert [one.task.n_envs for one in answers] == [1, 2]
    for one in answers:
        assert not one.skipped
        shares = [one.numbers[name] for name in ("stepping", "inference", "learning")]
        assert sum(shares) == pytest.approx(1.0, abs=1e-4)
        assert one.numbers["whole_steps"] == 128
    assert answers[0].note == "serial"
    assert answers[1].note.endswith(("×1", "×2")), "the backend that was chosen"


@pytest.mark.slow
def test_frames_and_their_floor_are_measured_on_a_cpu_too(tmp_path: Path) -> None:
    arguments = ["gpu", "--device", "cpu", "--n-envs", "2", "--rollout", "8", "--steps", "8"]
    more = ["--contestants", "shoal", "--repeats", "1", "--out", str(tmp_path)]
    assert train.main([*arguments, *more]) == 0
    by_name = {one.task.contestant: one for one in kept(tmp_path).answers}
    assert by_name.keys() == {"shoal", "floor"}
    assert not any(one.skipped for one in by_name.values())
    assert by_name["floor"].numbers["floor_learning_s"] > 0
    assert "kernels" not in by_name["shoal"].numbers, "there is no GPU here"


def test_stable_baselines_is_measured_where_it_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    arguments = ["against", "--envs", "CartPole-v1", "--n-envs", "2", "--steps", "64"]
    more = ["--contestants", "sb3 dummy", "--repeats", "1", "--out", str(tmp_path)]
    assert train.main([*arguments, *more]) == 0
    (one,) = kept(tmp_path).answers
    assert (one.skipped, one.task.seed) == ("", 0)
    assert 0 < one.numbers["learning"] < 1


@pytest.mark.slow
def test_one_gradient_is_measured_in_every_way(tmp_path: Path) -> None:
    asked = ["ablate", "--batch-sizes", "16", "--repeats", "1", "--out", str(tmp_path)]
    assert train.main(asked) == 0
    answers = kept(tmp_path).answers
    assert {one.task.contestant for one in answers} < set(plan.GRADIENTS)
    assert len(answers) == 3
    assert all(one.numbers["gradient_s"] > 0.0 for one in answers), [one.skipped for one in answers]
    (table,) = tmp_path.glob("*.md")
    assert "## One gradient of 16" in table.read_text()


def test_all_ways_go_down_the_same_gradient() -> None:
    moved = {}
    for way in ("as it is", "plain", "fused"):
        torch.manual_seed(0)
        agent, batch = floor.agent_of("CartPole-v1"), ablate.batch_of(64)
        before = torch.cat([one.detach().reshape(-1).clone() for one in agent.parameters()])
        ablate.WAYS[way](agent, batch)()
        after = torch.cat([one.detach().reshape(-1) for one in agent.parameters()])
        moved[way] = after - before
    assert moved["as it is"].abs().max() > 1e-5
    for way in ("plain", "fused"):
        torch.testing.assert_close(moved[way], moved["as it is"], atol=2e-6, rtol=1e-3)


def test_a_part_is_left_out_only_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(ours, "measure", lambda *_, **__: seen.append(Alone.is_in_place))
    ablate.without(TASK, 0.0, "pages")
    assert (seen, Alone.is_in_place) == ([False], True)


def test_on_a_gpu_training_goes_without_one_part_or_another() -> None:
    groups = plan.ablate([64], compiles=True, device="cuda", steps=8192)
    assert [one.contestant for one in groups[0]] == list(plan.GRADIENTS)
    assert [one.contestant for one in groups[1]] == [plan.OURS, *plan.WITHOUT]
    assert all(one.device == "cuda" for group in groups[1:] for one in group)


def test_what_went_wrong_in_a_process_is_told() -> None:
    lost = contest.run(Task("shoal", "NoSuchWorld-v0", 2, 4, 8, 1, steps=8))
    assert "NoSuchWorld" in lost.skipped
    late = contest.run(TASK, limit_s=0.01)
    assert late.skipped == "cut off after 0.01 s"


def test_unknown_names_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train.main(["against", "--envs", "CartPole-v0"])
    assert "Did you mean 'CartPole-v1'?" in capsys.readouterr().err


def test_others_who_use_the_machine_are_noticed() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as burning:
        try:
            assert contest.others_cpu(0.5) > contest.DISTURBED_CPU
        finally:
            burning.kill()


# --- wall clock ---------------------------------------------------------------------------------


def test_a_run_from_a_bare_clone_has_its_row(tmp_path: Path) -> None:
    config = load_yaml(PPORun, ROOT / "configs" / "cartpole.yaml")
    told = {"steps": 100_352, "seconds": 11.5, "steps_per_s": 9000.0}
    summary = {**told, "evaluation": {"eval/return_mean": 500.0}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    answers = [
        Answer(wallclock.task_of(what, config), 0, wallclock.numbers_of(tmp_path, whole_s))
        for what, whole_s in (
            (wallclock.from_clone("train-cartpole"), 73.0),
            (wallclock.again("train-cartpole"), 16.0),
        )
    ]
    text = markdown(Record.from_json(record("wallclock", *answers).to_json()))
    assert "| git clone, make train-cartpole | 1 | 73.00 s | 11.50 s | 100,352 | 500.0 |" in text
    assert "| make train-cartpole, again | 1 | 16.00 s | 11.50 s | 100,352 | 500.0 |" in text


QUICK_REPOSITORY = {
    "Makefile": """
leave = mkdir -p $(1)/a-run && cp config.yaml summary.json $(1)/a-run/
train-cartpole: ; $(call leave,$(lastword $(ARGS)))
train: ; $(call leave,$(TRAIN_OUTPUT_DIR))
""",
    "config.yaml": "env: CartPole-v1\ntotal_steps: 5\n",
    "summary.json": json.dumps(
        {"steps": 5, "seconds": 2.0, "steps_per_s": 3.0, "evaluation": {"eval/return_mean": 4.0}}
    ),
}
"""One whose `make` has nothing to install, and a run at hand: the real one takes minutes."""


@pytest.mark.skipif(not (shutil.which("git") and shutil.which("make")), reason="needs both")
def test_wall_clock_leaves_a_record_of_each_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    for name, text in QUICK_REPOSITORY.items():
        (repository / name).write_text(text)
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    monkeypatch.setattr(wallclock, "ROOT", repository)
    assert train.main(["wallclock", "--out", str(tmp_path / "out")]) == 0
    answers = kept(tmp_path / "out").answers
    assert [one.task.contestant for one in answers] == [
        "git clone, make train-cartpole",
        "make train-cartpole, again",
        "git clone, make train",
        "make train, again",
    ]
    assert all(one.numbers["evaluation"] == 4.0 for one in answers)
    assert all(one.numbers["whole_s"] > 0.0 for one in answers)


# --- pictures -----------------------------------------------------------------------------------


def test_pictures_follow_from_the_records(tmp_path: Path) -> None:
    panels = many_envs.of_training(many_envs.trainings(RESULTS))
    assert all("CartPole-v1" in lines for lines in panels.values())
    one, other = (many_envs.draw(panels, tmp_path / name) for name in ("a.svg", "b.svg"))
    assert one.read_bytes() == other.read_bytes()


def stepped(begun: str, counts: Sequence[int], cores: int = 2, workload: str = "") -> str:
    """A record with every line of the picture; or of one workload only."""
    jobs = [
        Job(contestant, WORKLOADS[name].env, num_envs)
        for contestant in many_envs.SHOWN
        for name in ([workload] if workload else many_envs.ALONE)
        for num_envs in counts
    ]
    outcomes = [Outcome(job, 0, Figures(steps_per_s=1.0 * job.num_envs)) for job in jobs]
    return Stepping(replace(MACHINE, cores=cores), begun, "some command", outcomes).to_json()


def test_of_each_machine_the_record_with_most_numbers_is_drawn_then_the_newest(
    tmp_path: Path,
) -> None:
    texts = {
        "a": stepped("2026-03-01", (8, 64)),
        "b": stepped("2026-01-02", (2, 8, 64)),
        "c": stepped("2026-02-02", (2, 8, 64)),
        "d": stepped("2026-01-01", (8, 64), cores=16),
        "teams": stepped("2026-09-01", (2, 8, 32, 64), workload="spread"),
        "train": record("speedup", answer("shoal")).to_json(),
        "figures": json.dumps({"figures": []}),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(text)
    found = many_envs.stepping(tmp_path)
    assert [(one.machine.cores, one.begun) for one in found] == [
        (2, "2026-02-02"),
        (16, "2026-01-01"),
    ]
    line = many_envs.of_environments(found[0])["cartpole, 2 cores"]["hybrid"]
    assert line == [(2, 2.0), (8, 8.0), (64, 64.0)]


def test_a_picture_without_a_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "teams.json").write_text(stepped("2026-09-01", (8, 64), workload="spread"))
    for find, command in (
        (many_envs.stepping, "make bench"),
        (many_envs.trainings, "python -m benchmarks.train speedup"),
    ):
        with pytest.raises(ConfigError) as refused:
            find(tmp_path)
        for part in ("no record fits the picture", f"{tmp_path}: expected", f"one: {command}"):
            assert part in str(refused.value)
