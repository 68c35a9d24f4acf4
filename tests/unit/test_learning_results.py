"""Are rows of the learning results made once, kept whole, judged alike, and told truly?"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("yaml")

from benchmarks.learning import intervals, one, ours, plots, report, rows, run, sb3, tasks, trial
from benchmarks.learning.intervals import Interval
from benchmarks.learning.rows import Row
from benchmarks.learning.tasks import TASKS, Job, Linear, Settings, Task, jobs
from benchmarks.learning.worlds import cartpole_without_velocities
from benchmarks.plan import ROOT
from shoal import ConfigError
from shoal.seeding import evaluation_seed
from shoal.testing import check_env
from shoal.training.config import PPORun
from shoal.training.ppo import Training
from shoal.training.settings import load_yaml

CARTPOLE = TASKS["cartpole"]
SHORT = replace(CARTPOLE, steps=1024)
LONG_S = 60.0


def row(job: Job, score: float = 1.0, **changes: Any) -> Row:
    told: dict[str, Any] = {
        "task": job.task.name,
        "library": job.library,
        "seed": job.seed,
        "steps": job.task.steps,
        "returns": [score - 1.0, score + 1.0],
        "curve": [(100, 0.0), (job.task.steps, score)],
        "wall_s": 2.0,
        "cpu_s": 1.0,
        "settings": job.task.settings(job.library),
        "versions": {"torch": "2"},
        "machine": "A CPU, 2 cores",
        "commit": "abc",
        "begun": "2026-01-02 03:04 UTC",
    }
    return Row(**{**told, **changes})


def wait_for(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + LONG_S
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about")


# --- tasks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_a_task_is_what_its_config_says(task: Task) -> None:
    config = load_yaml(PPORun, ROOT / task.config)
    assert (config.envs.env, config.goal.total_steps) == (task.env, task.steps)


NEEDS = {"lunarlander": "Box2D", "hopper": "mujoco", "halfcheetah": "mujoco"}
NEEDS |= {"connect_four": "pettingzoo", "simple_spread": "mpe2", "gameboy_long": "pyboy"}


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_every_task_can_be_trained_as_rows_are_made(task: Task) -> None:
    pytest.importorskip(NEEDS.get(task.name, "gymnasium"))
    config = ours.config_of(Job(task, "shoal", 0))
    with Training(config, config.envs.env) as training:
        assert (training.envs.num_envs, training.source.step) == (config.envs.n_envs, 0)


def test_libraries_take_turns_seed_by_seed() -> None:
    made = [str(job) for job in jobs([SHORT, TASKS["memory"]], ["shoal", "sb3"], 2)]
    assert made[:3] == ["cartpole-shoal-0", "cartpole-sb3-0", "cartpole-shoal-1"]
    assert made[4:] == ["memory-shoal-0", "memory-sb3-0", "memory-shoal-1", "memory-sb3-1"]


COUNTERPARTS = {
    *("learning_rate", "learning_rate_schedule", "n_steps", "batch_size", "n_epochs", "gamma"),
    *("gae_lambda", "clip_range", "entropy_coef", "value_coef", "max_grad_norm", "hidden_sizes"),
    *("activation", "initial_log_std", "normalize_observations", "normalize_rewards"),
}


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.also_alike])
def test_nothing_of_ours_is_without_a_counterpart_there(name: str) -> None:
    config = load_yaml(PPORun, ROOT / TASKS[name].config)
    for group in (config.ppo, config.network):
        for field in fields(group):
            if field.name not in COUNTERPARTS:
                assert getattr(group, field.name) == field.default, field.name
    assert config.ppo.normalize_rewards == config.network.normalize_observations


def test_the_same_settings_make_the_same_network_and_optimizer_there() -> None:
    pytest.importorskip("stable_baselines3")
    pytest.importorskip("mujoco")
    task = TASKS["halfcheetah"]
    config, told = load_yaml(PPORun, ROOT / task.config), task.theirs("sb3_alike")
    model = sb3.make_ppo([partial(gymnasium.make, task.env)] * told.n_envs, told, seed=0)
    with Training(ours.config_of(Job(task, "shoal", 0)), task.env) as training:
        our_shapes = [tuple(one.shape) for one in training.agent.parameters()]
    their_shapes = [tuple(one.shape) for one in model.policy.parameters()]
    model.get_env().close()
    assert sorted(our_shapes) == sorted(their_shapes)
    assert model.policy.log_std.tolist() == [config.network.initial_log_std] * 6
    assert (model.n_steps, model.batch_size, model.n_epochs) == (64, 64, 10)
    assert (model.learning_rate, model.clip_range(1.0), model.vf_coef) == (4e-5, 0.1, 0.58)
    assert (model.gamma, model.gae_lambda, model.max_grad_norm) == (0.98, 0.92, 0.8)
    assert model.ent_coef == 4e-4


def test_only_places_are_seen_without_velocities() -> None:
    env = cartpole_without_velocities()
    env.reset(seed=0)
    seen = env.step(1)[0]
    assert seen.tolist() == np.float32(env.unwrapped.state)[[0, 2]].tolist()  # type: ignore[attr-defined]
    report = check_env(cartpole_without_velocities, episodes=1, steps=5)
    assert report.ok, report


# --- one training -------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "every"), [(100_000, 256), (1_000, 100), (1_000_000, 16_384)])
def test_a_curve_has_about_fifty_points_and_the_last_is_the_end(steps: int, every: int) -> None:
    curve = trial.Curve(steps)
    end = math.ceil(steps / every) * every
    for step in range(every, end + 1, every):
        if curve.is_due(step):
            curve.add(step, 0.0)
    assert curve.points[-1][0] == end
    assert min(50, end // every) - 10 <= len(curve.points) <= 51


class Noting(gymnasium.Env[Any, Any]):
    """Pays what it is told to, for two steps, and notes its seeds."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(9)
    seeds: list[int | None] = []  # noqa: RUF012

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self._has_stepped = not getattr(self, "_has_stepped", False)
        return 1, float(action), False, not self._has_stepped, {}


class Counting:
    """Plays how often it has played since the episode began."""

    def begin(self) -> None:
        self._count = 0

    def act(self, observation: Any, info: Any = None) -> int:
        self._count += 1
        return self._count

    def gain(self, observation: Any, reward: float) -> float:
        return reward


def test_a_policy_is_judged_by_whole_episodes_with_seeds_of_their_own() -> None:
    Noting.seeds.clear()
    task = replace(SHORT, env=f"{__name__}:Noting")
    assert trial.judge(Counting(), task, 3, 4) == [3.0] * 4
    assert Noting.seeds == [evaluation_seed(3, k) for k in range(4)]


def test_our_row_repeats() -> None:
    job = Job(SHORT, "shoal", 5)
    first, second = (ours.train(job, num_episodes=3) for _ in range(2))
    assert first.returns == second.returns
    assert first.curve == second.curve
    assert len(first.returns) == 3
    assert first.curve[-1][0] == 1024
    assert first.settings["env"] == "CartPole-v1"
    other = ours.train(Job(SHORT, "shoal", 6), num_episodes=3)
    assert other.curve != first.curve


def test_stable_baselines_are_told_what_the_task_says() -> None:
    pytest.importorskip("stable_baselines3")
    from benchmarks.learning.sb3 import make_ppo

    policy = {"activation_fn": "ReLU", "net_arch": {"pi": [8], "vf": [8]}}
    told = {"gamma": 0.9, "n_steps": 16, "batch_size": 32, "policy_kwargs": policy}
    settings = Settings(2, {**told, "learning_rate": Linear(0.5)}, normalize=True)
    model = make_ppo([lambda: gymnasium.make("CartPole-v1")] * 2, settings, seed=0)
    try:
        assert (model.gamma, model.n_envs, model.n_steps) == (0.9, 2, 16)
        assert model.lr_schedule(0.5) == 0.25
        assert model.get_vec_normalize_env().gamma == 0.9
        assert "ReLU" in str(model.policy)
    finally:
        model.get_env().close()


@pytest.mark.parametrize("name", ["cartpole", pytest.param("acrobot", marks=pytest.mark.slow)])
def test_their_row_is_made_like_ours(name: str) -> None:
    pytest.importorskip("stable_baselines3")
    from benchmarks.learning import sb3

    made = sb3.train(Job(replace(TASKS[name], steps=512), "sb3", 0), num_episodes=2)
    assert len(made.returns) == 2
    assert made.settings == TASKS[name].settings("sb3")


def test_a_changed_tree_is_dirty(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        named = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "one.py").write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    clean = trial.commit(tmp_path)
    (tmp_path / "notes.txt").write_text("of no consequence")
    assert trial.commit(tmp_path) == clean
    assert len(clean) == 10
    (tmp_path / "src" / "two.py").write_text("2")
    assert trial.commit(tmp_path) == f"{clean}-dirty"


def test_without_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert trial.commit(tmp_path) == "unknown"


# --- rows ---------------------------------------------------------------------------------------


def test_a_row_is_read_as_it_was_written(tmp_path: Path) -> None:
    job = Job(CARTPOLE, "sb3", 3)
    written = row(job, 7.0)
    assert rows.read(tmp_path, job) is None
    rows.write(tmp_path, job, written)
    assert rows.read(tmp_path, job) == written
    (file,) = tmp_path.iterdir()
    assert file.name == "cartpole-sb3-3.json"
    told = json.loads(file.read_text())
    assert (told["score"], told["score_std"], told["commit"]) == (7.0, 1.0, "abc")


@pytest.mark.parametrize("stamp", ["0123456789-dirty", "unknown"])
def test_a_row_that_nobody_can_make_again_is_refused(tmp_path: Path, stamp: str) -> None:
    job = Job(CARTPOLE, "shoal", 0)
    with pytest.raises(ConfigError, match=f"stamped '{stamp}'.* --allow-dirty"):
        rows.write(tmp_path, job, row(job, commit=stamp))
    assert rows.read(tmp_path, job) is None
    rows.write(tmp_path, job, row(job, commit=stamp), allow_dirty=True)
    assert rows.read(tmp_path, job) is not None


@pytest.mark.parametrize("program", [run, one])
def test_an_unclean_tree_is_told_before_anything_is_trained(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "commit", lambda: "0123456789-dirty")
    words = ["cartpole", "shoal", "0"] if program is one else ["--tasks", "cartpole"]
    with pytest.raises((ConfigError, SystemExit), match="Commit what was changed"):
        program.main([*words, "--rows", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_rows_that_are_kept_are_of_clean_commits() -> None:
    files = list(rows.FOLDER.glob("*.json"))
    assert len(files) > 100
    odd = [file.name for file in files if not rows.is_clean(Row.from_json(file.read_text()).commit)]
    assert not odd, "make them again: python -m benchmarks.learning.run --again --tasks ..."


def test_a_row_of_another_cartridge_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "game.gb").write_bytes(b"one")
    monkeypatch.setattr(tasks, "ROOT", tmp_path)
    job = Job(replace(TASKS["gameboy_long"], files=("game.gb",)), "random", 0)
    rows.write(tmp_path, job, row(job))
    assert rows.read(tmp_path, job) is not None
    (tmp_path / "game.gb").write_bytes(b"other")
    assert rows.read(tmp_path, job) is None


@pytest.mark.parametrize("change", [{"steps": 5}, {"settings": {"n_envs": 1}}])
def test_a_row_of_other_settings_does_not_count(tmp_path: Path, change: dict[str, Any]) -> None:
    job = Job(CARTPOLE, "shoal", 0)
    rows.write(tmp_path, job, row(job, **change))
    assert rows.read(tmp_path, job) is None


def test_what_is_no_row_is_named(tmp_path: Path) -> None:
    job = Job(CARTPOLE, "shoal", 0)
    rows.path_of(tmp_path, job).write_text("{}")
    with pytest.raises(ConfigError, match=r"cartpole-shoal-0\.json is no row .* Remove it"):
        rows.read(tmp_path, job)


# --- the command --------------------------------------------------------------------------------


def arguments(folder: Path, *more: str, steps: int = 512) -> list[str]:
    words = ["--tasks", "cartpole", "--libraries", "shoal", "--steps", str(steps)]
    return [*words, "--rows", str(folder), "--jobs", "2", *more]


def test_a_row_that_is_there_is_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(arguments(tmp_path, "--seeds", "1")) == 0
    (file,) = tmp_path.iterdir()
    before = file.stat().st_mtime_ns
    assert run.main(arguments(tmp_path, "--seeds", "1")) == 0
    assert file.stat().st_mtime_ns == before
    said = capsys.readouterr().out
    assert "1 of 1 rows are to be made" in said
    assert "[1 of 1, 0 min] cartpole-shoal-0: " in said
    assert "0 of 1 rows are to be made" in said


def test_no_row_is_begun_when_time_is_up(tmp_path: Path) -> None:
    assert run.main(arguments(tmp_path, "--minutes", "0")) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_fails_is_told_and_the_others_are_made(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    task = replace(CARTPOLE, steps=512)
    bad, good = Job(task, "shoal", -1), Job(task, "shoal", 0)
    crew = run.Crew(tmp_path, 1, allow_dirty=True)
    crew.work([bad, good], math.inf)
    assert crew.failed == [bad]
    assert rows.read(tmp_path, good) is not None
    said = capfd.readouterr()
    assert "cartpole-shoal--1: ended with 1" in said.out
    assert "Traceback" in said.err


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_broken_off_it_leaves_no_process_and_no_half_row(
    tmp_path: Path, number: signal.Signals
) -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.learning.run"),
            *arguments(tmp_path, "--seeds", "2", steps=10**9),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        whole = psutil.Process(process.pid)
        children = wait_for(lambda: len(found := whole.children()) == 2 and found)
        process.send_signal(number)
        said, _ = process.communicate(timeout=LONG_S)
        wait_for(lambda: not any(map(_is_alive, children)))
    finally:
        process.kill()
    assert list(tmp_path.iterdir()) == []
    if number != signal.SIGKILL:
        assert process.returncode == 128 + signal.SIGINT
        assert "broken off; what was finished is kept" in said


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tasks", "cartpol"], "Did you mean 'cartpole'?"),
        (["--libraries", "sb4"], "Did you mean 'sb3'?"),
        (["--steps", "5"], "say with --rows"),
    ],
)
def test_what_is_wrong_is_explained(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run.main(words)
    assert said in capsys.readouterr().err


# --- the report ---------------------------------------------------------------------------------


def near(scores: Sequence[float]) -> Interval:
    """An interval that needs no rliable."""
    middle = float(np.mean(scores))
    return Interval(middle, middle - 1.0, middle + 1.0)


def written(folder: Path, ours: float, theirs: float, num_seeds: int = 3) -> None:
    for library, score in (("shoal", ours), ("sb3", theirs)):
        for seed in range(num_seeds):
            job = Job(CARTPOLE, library, seed)
            rows.write(folder, job, row(job, score + 10 * seed))


def test_the_page_says_what_the_rows_hold(tmp_path: Path) -> None:
    written(tmp_path, 470.0, 400.0)
    job = Job(CARTPOLE, "shoal", 3)
    rows.write(tmp_path, job, row(job, 500.0, commit="def-dirty"), allow_dirty=True)
    text = report.markdown(report.compare(tmp_path, near), {"cartpole": "images/one.svg"})
    for part in (
        "| CartPole-v1 | 100,000 | 485.0 (484.0 to 486.0) | 410.0 (409.0 to 411.0) | above |",
        "| Hopper-v5 | 1,000,000 | – | – | – | – |",
        "Of the 1 with 3 rows of both or more, it is wholly below on: none.",
        "| Shoal | 4 | 485.0 (484.0 to 486.0) | 470.0 to 500.0 | 3 of 4 | 2 | 1 |",
        "| Stable-Baselines3 | 3 | 410.0 (409.0 to 411.0) | 400.0 to 420.0 | 0 of 3 | 2 | 1 |",
        "Asked: at least 475 on every seed.",
        "(images/one.svg)",
        "7 of 182 rows are there. Missing: cartpole Stable-Baselines3 7, cartpole Shoal 6, ",
        "- Commits (rows): `abc` (6), `def-dirty` (1)",
        "- Made on an unclean tree (`-dirty`: a commit with changes on top): cartpole Shoal 1",
        "Made by commits (rows) `abc` (6), `def-dirty` (1), on one kind of machine: A CPU",
        "A CPU, 2 cores (7)",
        "torch 2",
    ):
        assert part in text, part


def test_times_of_different_machines_are_not_compared(tmp_path: Path) -> None:
    written(tmp_path, 470.0, 400.0)
    assert "| wall s | CPU s |" in report.markdown(report.compare(tmp_path, near), {})
    job = Job(CARTPOLE, "sb3", 2)
    rows.write(tmp_path, job, row(job, 410.0, machine="Another CPU, 16 cores"))
    text = report.markdown(report.compare(tmp_path, near), {})
    assert "wall s" not in text
    assert "on machines of 2 kinds: A CPU, 2 cores (5), Another CPU, 16 cores (1)." in text
    assert "| Shoal | 3 | 480.0 (479.0 to 481.0) | 470.0 to 490.0 | 2 of 3 |\n" in text


@pytest.mark.parametrize(
    ("ours", "verdict"), [(400.0, "below"), (449.0, "level"), (451.0, "level"), (500.0, "above")]
)
def test_the_verdict_is_about_whole_intervals(tmp_path: Path, ours: float, verdict: str) -> None:
    written(tmp_path, ours, 450.0)
    compared = report.compare(tmp_path, near)
    assert compared[0].verdict == verdict
    assert ("below on: CartPole-v1." in report.markdown(compared, {})) == (verdict == "below")


def test_two_seeds_decide_nothing(tmp_path: Path) -> None:
    written(tmp_path, 400.0, 450.0, num_seeds=2)
    compared = report.compare(tmp_path, near)
    assert compared[0].verdict == "–"
    assert "| 405.0 (404.0 to 406.0) | 455.0 (454.0 to 456.0) | – |" in report.markdown(
        compared, {}
    )


def test_the_verdict_does_not_wait_for_rows_with_our_settings(tmp_path: Path) -> None:
    for library, score in (("shoal", 3000.0), ("sb3", 1000.0)):
        for seed in range(3):
            job = Job(TASKS["hopper"], library, seed)
            rows.write(tmp_path, job, row(job, score + seed))
    (hopper,) = (one for one in report.compare(tmp_path, near) if one.task.name == "hopper")
    assert hopper.task.libraries == ("shoal", "sb3", "sb3_alike")
    assert hopper.verdict == "above"


def test_without_rows_the_page_says_so(tmp_path: Path) -> None:
    text = report.markdown(report.compare(tmp_path, near), {})
    assert "No task has 3 rows of both libraries yet." in text
    assert "0 of 182 rows are there." in text


def test_curves_are_compared_at_the_same_steps() -> None:
    steps, returns = intervals.on_grid([[(0, 0.0), (10, 10.0)], [(4, 1.0), (8, 1.0)]], 3)
    assert steps.tolist() == [4, 6, 8]
    assert returns.tolist() == [[4, 6, 8], [1, 1, 1]]


def test_the_middle_half_counts() -> None:
    pytest.importorskip("rliable")
    scores = [-1000.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1000.0]
    found = intervals.interval(scores)
    assert found.iqm == 2.5
    assert found.low < 2.5 < found.high
    assert found == intervals.interval(scores)
    assert intervals.interval([5.0, 5.0]) == Interval(5.0, 5.0, 5.0)


def test_bands_are_intervals_of_every_point() -> None:
    pytest.importorskip("rliable")
    curves = np.arange(8.0)[:, None] + np.array([0.0, 100.0])
    found = intervals.band(curves)
    assert found.iqm.tolist() == [3.5, 103.5]
    assert (found.low < found.iqm).all()
    assert (found.high > found.iqm).all()
    assert found.high[0] < 8.0


def test_one_agent_of_a_team_is_judged_in_turn_beside_random_ones() -> None:
    pytest.importorskip("mpe2")
    from benchmarks.learning import chance

    class Still:
        """Does nothing."""

        def begin(self) -> None: ...

        def act(self, observation: Any, info: Any = None) -> Any:
            return np.zeros(2, np.int64)

    task = TASKS["simple_push"]
    player = chance.among_random(Still(), Job(task, "shoal", 0))
    env = trial.env_of(task)
    for episode in range(4):
        player.begin()
        observation, _ = env.reset(seed=episode)
        seat, taken, total, gains = episode % 2, [], 0.0, np.zeros(2)
        for _ in range(25):
            taken.append(player.act(observation))
            observation, reward, *_ = env.step(taken[-1])
            total += player.gain(observation, reward)
            gains += observation["rewards"]
        assert not np.array(taken)[:, seat].any()
        assert np.array(taken)[:, 1 - seat].any()
        assert total == gains[seat] != gains[1 - seat]
    together = TASKS["simple_spread"]
    assert chance.among_random(player, Job(together, "shoal", 0)) is player


def test_a_page_is_written_with_its_pictures(tmp_path: Path) -> None:
    pytest.importorskip("rliable")
    pytest.importorskip("matplotlib")
    written(tmp_path / "rows", 470.0, 400.0)
    (tmp_path / "docs").mkdir()
    page = report.write(tmp_path / "rows", tmp_path / "docs")
    picture = tmp_path / "docs" / "images" / "results-cartpole.svg"
    assert f"({picture.relative_to(tmp_path / 'docs')})" in page.read_text()
    first = picture.read_bytes()
    plots.draw(CARTPOLE, report.compare(tmp_path / "rows")[0].rows, picture)
    assert picture.read_bytes() == first


# --- players that learn nothing -------------------------------------------------------------------


@pytest.mark.parametrize(("library", "share"), [("random", 0.0), ("scripted", 1.0)])
def test_games_are_won_by_what_the_last_info_says(library: str, share: float) -> None:
    pytest.importorskip("pyboy")
    game = TASKS["gameboy_long"]
    assert game.libraries == ("shoal", "random", "scripted")
    made = one.train_of(library)(Job(game, library, 0), 3)
    assert made.returns == [share] * 3


def test_every_baseline_has_its_column(tmp_path: Path) -> None:
    game = TASKS["gameboy_long"]
    for job in jobs([game], game.libraries):
        score = {"shoal": 0.98, "random": 0.0, "scripted": 1.0}[job.library]
        rows.write(tmp_path, job, row(job, returns=[score]))
    found = report.compare(tmp_path, lambda scores: Interval(scores[0], scores[0], scores[0]))
    text = report.markdown(found, {})
    assert "| task | steps | Shoal | random players | scripted player | our interval |" in text
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {game.title} ")]
    assert line.count("|") == 7
    assert line.endswith("| above |")
