"""Runs from start to end, from Python and from the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest

torch = pytest.importorskip("torch")

from threadpoolctl import threadpool_info  # noqa: E402
from torch import nn  # noqa: E402

import shoal  # noqa: E402
from shoal.cli import main  # noqa: E402
from shoal.compat import PPOTrainer  # noqa: E402
from shoal.monitor.jsonl import read as read_rows  # noqa: E402
from shoal.training import StopAt  # noqa: E402
from shoal.training.checkpoint import Checkpoint, read, write  # noqa: E402
from shoal.training.config import (  # noqa: E402
    EnvConfig,
    GoalConfig,
    OutputConfig,
    PPORun,
    RunConfig,
)
from shoal.training.loop import Progress  # noqa: E402
from shoal.training.ppo import Training  # noqa: E402
from shoal.training.settings import load_yaml  # noqa: E402

SHORT: dict[str, Any] = {
    "env": "CartPole-v1",
    "n_envs": 2,
    "backend": "serial",
    "n_steps": 64,
    "n_epochs": 2,
    "total_steps": 512,
    "eval_episodes": 2,
    "calibrate": False,
    "device": "cpu",
}


def run(folder: Path, **changes: Any) -> Any:
    return shoal.train("ppo", run_dir=folder, shows=False, **{**SHORT, **changes})


def flags(**changes: Any) -> list[str]:
    words = []
    for name, value in {**SHORT, **changes}.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def test_a_run_leaves_a_folder_that_tells_all_of_it(tmp_path: Path) -> None:
    done = run(tmp_path)
    names = {file.name.split(".")[0] for file in done.folder.iterdir()}
    assert names == {"config", "metrics", "events", "checkpoints", "curves", "summary", "videos"}
    assert [file.name for file in (done.folder / "videos").iterdir()] == ["final.mp4"]
    assert {file.name for file in (done.folder / "checkpoints").iterdir()} == {
        "best_model.safetensors",
        "final_model.safetensors",
    }
    summary = json.loads((done.folder / "summary.json").read_text())
    assert summary["steps"] == 512
    assert sum(summary["shares_of_time"].values()) == pytest.approx(1.0)
    rows = read_rows(done.folder / "metrics.jsonl")
    assert [row["step"] for row in rows if "train/policy_loss" in row] == [128, 256, 384, 512]


def test_a_small_network_is_computed_by_one_thread(tmp_path: Path) -> None:
    def num_threads() -> list[int]:
        blas = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
        return [torch.get_num_threads(), *blas]

    seen: list[list[int]] = []
    before = num_threads()
    run(tmp_path, callbacks=[lambda _: seen.append(num_threads())])
    assert seen
    assert all(set(found) == {1} for found in seen)
    assert num_threads() == before


def test_a_network_begins_the_same_on_machines_of_any_number_of_cores() -> None:
    def weights(num_threads: int) -> bytes:
        torch.set_num_threads(num_threads)
        try:
            config = PPORun(envs=EnvConfig(env="CartPole-v1", n_envs=1, backend="serial"))
            with Training(config, config.envs.env) as training:
                return b"".join(
                    one.detach().numpy().tobytes() for one in training.agent.parameters()
                )
        finally:
            torch.set_num_threads(before)

    before = torch.get_num_threads()
    assert weights(1) == weights(2)


def test_the_config_of_a_run_reproduces_it(tmp_path: Path) -> None:
    first = run(tmp_path, seed=3)
    config = first.folder / "config.yaml"
    assert main(["train", "ppo", "--config", str(config), "--run-dir", str(tmp_path / "b")]) == 0
    (other,) = (tmp_path / "b").iterdir()
    mine, theirs = (
        read(one / "checkpoints/final_model.safetensors") for one in (first.folder, other)
    )
    assert all(torch.equal(mine.tensors[name], theirs.tensors[name]) for name in mine.tensors)


def test_what_was_trained_acts_and_can_be_evaluated(tmp_path: Path) -> None:
    folder = run(tmp_path).folder
    player = shoal.load(folder)
    env = gymnasium.make("CartPole-v1")
    assert env.action_space.contains(player.act(env.reset(seed=0)[0]))
    one, other = (shoal.evaluate(folder, episodes=3) for _ in range(2))
    assert one == other
    assert one.returns != shoal.evaluate(folder, episodes=3, seed=1).returns
    file = folder / "checkpoints/final_model.safetensors"
    assert len(shoal.evaluate(file, episodes=2, deterministic=False).returns) == 2


def test_a_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole", total_steps=1024, learning_rate_schedule="constant")
    half = run(tmp_path / "half", total_steps=512)
    done = shoal.train("ppo", resume_from=half.folder, total_steps=1024, shows=False)
    assert done.folder == half.folder
    rows = read_rows(done.folder / "metrics.jsonl")
    steps = [row["step"] for row in rows if "train/policy_loss" in row]
    assert steps == list(range(128, 1025, 128))
    mine, theirs = (
        read(one.folder / "checkpoints/final_model.safetensors") for one in (done, whole)
    )
    for name, tensor in theirs.tensors.items():
        assert torch.equal(mine.tensors[name], tensor), name


def test_checkpoints_go_where_they_are_asked_for(tmp_path: Path) -> None:
    run(tmp_path / "runs", checkpoint_dir=tmp_path / "kept", save_every=5, total_steps=1024)
    names = {file.stem for file in (tmp_path / "kept").iterdir()}
    assert {"best_model", "final_model"} < names
    assert any(name.startswith("checkpoint_ep") for name in names)


def test_a_run_that_is_given_no_goal_has_one(tmp_path: Path) -> None:
    def first(progress: Progress) -> None:
        progress.stop("seen")

    done = run(tmp_path, total_steps=None, callbacks=[first])
    assert load_yaml(PPORun, done.folder / "config.yaml").goal == GoalConfig(100_000)
    by_episodes = run(tmp_path, total_steps=None, num_episodes=1).folder / "config.yaml"
    assert load_yaml(PPORun, by_episodes).goal == GoalConfig(None, 1)
    assert "None: 100,000, unless num_episodes says" in by_episodes.read_text()


def test_the_command_line_needs_no_goal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.training.request.DEFAULT_STEPS", 256)  # 100,000 take a while
    asked = ["--run-dir", str(tmp_path), "--no-calibrate", "--eval-episodes", "1"]
    assert main(["train", "ppo", "--env", "CartPole-v1", "--n-envs", "8", *asked]) == 0
    assert "goal 256 steps" in capsys.readouterr().out
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "summary.json").read_text())["steps"] == 1024, "a whole rollout"


def test_stop_at_ends_a_run_that_is_good_enough(tmp_path: Path) -> None:
    done = run(tmp_path, callbacks=[StopAt(5)], total_steps=None)
    assert done.summary["stopped_by"] == "a mean return of 5 over the latest 100 episodes"
    assert done.summary["steps"] < 4096
    with pytest.raises(shoal.ConfigError, match="nan"):
        StopAt(float("nan"))


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose checkpoints are in `kept`, elsewhere."""
    monkeypatch.chdir(tmp_path)
    return run(Path("runs"), checkpoint_dir=Path("kept"), seed=1).folder.absolute()


def test_a_run_finds_its_checkpoints_wherever_they_are(
    apart: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = apart.parents[1] / "kept"
    monkeypatch.chdir("/")
    assert main(["eval", str(apart), "--episodes", "1"]) == 0
    assert "over 1 episodes" in capsys.readouterr().out
    shoal.load(apart).act(np.zeros(4, np.float32))
    shoal.load(kept).act(np.zeros(4, np.float32))
    renamed = apart.rename(apart.with_name("renamed"))
    assert len(shoal.evaluate(renamed, episodes=1).returns) == 1


@pytest.mark.parametrize("named", ["run", "checkpoints"])
def test_a_run_with_checkpoints_elsewhere_goes_on_in_its_folder(named: str, apart: Path) -> None:
    before = {"run": apart, "checkpoints": Path("kept")}[named]
    done = shoal.train("ppo", resume_from=before, total_steps=768, shows=False)
    assert done.folder.absolute() == apart
    assert list(Path("runs").iterdir()) == [Path("runs", apart.name)], "a second run was begun"
    steps = [row["step"] for row in read_rows(apart / "metrics.jsonl") if "train/entropy" in row]
    assert steps == list(range(128, 769, 128))
    assert read(Path("kept/final_model.safetensors")).about["step"] == 768
    assert load_yaml(PPORun, apart / "config.yaml").run.resume_from is None


def test_a_run_does_not_take_the_checkpoints_of_another(apart: Path) -> None:
    run(Path("runs"), checkpoint_dir=Path("kept"), total_steps=256)
    with pytest.raises(shoal.ConfigError, match="no readable checkpoint"):
        shoal.load(apart)
    fresh = run(Path("runs"), checkpoint_dir=Path("kept"), total_steps=128).folder
    done = shoal.train("ppo", resume_from=fresh, total_steps=256, shows=False)
    assert (done.folder, done.summary["steps"]) == (fresh, 256)


def test_a_run_goes_on_in_its_folder_from_that_of_its_checkpoints(tmp_path: Path) -> None:
    folder = run(tmp_path).folder
    done = shoal.train("ppo", resume_from=folder / "checkpoints", total_steps=640, shows=False)
    assert done.folder == folder


def test_what_a_file_goes_on_from_decides_about_the_rest(tmp_path: Path) -> None:
    first = run(tmp_path, gamma=0.9, hidden_sizes=(8,)).folder
    file, other = tmp_path / "on.yaml", tmp_path / "other"
    file.write_text(f"resume_from: {first}\ntotal_steps: 640\n")
    assert main(["train", "ppo", "--config", str(file)]) == 0
    held = load_yaml(PPORun, first / "config.yaml")
    assert (held.ppo.gamma, held.network.hidden_sizes, held.goal.total_steps) == (0.9, (8,), 640)
    assert json.loads((first / "summary.json").read_text())["steps"] == 640
    anew = ["--resume-from", "None", "--total-steps", "8", "--n-steps", "8"]
    assert main(["train", "ppo", "--config", str(file), *anew, "--run-dir", str(other)]) == 0
    (folder,) = other.iterdir()
    assert load_yaml(PPORun, folder / "config.yaml").ppo.gamma == 0.99, "a run of its own"


def test_the_script_takes_what_it_was_asked_to_take(tmp_path: Path) -> None:
    """All of its documented flags, briefly, with workers that are spawned; then it goes on."""
    kept = tmp_path / "checkpoints" / "parallel_v1"
    flags_of_it = f"""
        --n-envs 8 --num-episodes 10 --device cpu --learning-rate 3e-4 --checkpoint-dir {kept}
        --seed 3 --env CartPole-v1 --gamma 0.98 --gae-lambda 0.9 --clip-range 0.1 --value-coef 0.4
        --entropy-coef 0.01 --n-epochs 2 --batch-size 64 --eval-every 5 --save-every 5
        --log-interval 1 --parallel-start-method spawn
        --n-steps 16 --eval-episodes 1 --no-calibrate --backend process --num-workers 2
    """
    script = Path(__file__).parents[2] / "scripts" / "train_ppo.py"
    command = [sys.executable, str(script), *flags_of_it.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    for text in (
        "Using 8 parallel environments for training",
        "Start method: spawn",
        "Parallel mode: 8 environments",
        "Episode 10/10 | Reward: ",
        " | Mean(100): ",
        "n_envs: 8",
    ):
        assert text in done.stdout, text
    names = {file.stem for file in kept.iterdir()}
    assert {"best_model", "final_model"} < names
    assert [name for name in names if name.startswith("checkpoint_ep")]
    (folder,) = (tmp_path / "runs").iterdir()
    held = load_yaml(PPORun, folder / "config.yaml")
    assert (held.ppo.value_coef, held.envs.parallel_start_method) == (0.4, "spawn")
    on = [*command[:2], "--resume-from", str(folder), "--num-episodes", "12", "--no-calibrate"]
    done = subprocess.run(on, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "summary.json").read_text())["episodes"] == 12


@pytest.mark.parametrize("name", ["taac", "PPO", "meta"])
def test_which_algorithms_there_are_is_told(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", name, "--env", "CartPole-v1"]) == 2
    told = capsys.readouterr().err
    assert f"there is no algorithm {name!r}" in told
    assert "'ppo'" in told


def test_a_number_of_episodes_ends_a_run(tmp_path: Path) -> None:
    done = run(tmp_path, total_steps=None, num_episodes=7)
    assert done.summary["episodes"] == 7


def test_a_number_of_episodes_that_is_raised_ends_a_run_that_goes_on(tmp_path: Path) -> None:
    first = run(tmp_path, n_envs=8, total_steps=None, num_episodes=10)
    more = {"num_episodes": 60, "total_steps": first.summary["steps"] + 16_384}
    done = shoal.train("ppo", resume_from=first.folder, shows=False, **more)
    assert done.summary["episodes"] == 60


class Own(nn.Module):
    """A user's network: the smallest there is."""

    def __init__(self, space: Any, num_parameters: int) -> None:
        super().__init__()
        self.layer = nn.Linear(space.shape[0], num_parameters + 1)

    def forward(self, observation: Any) -> Any:
        out = self.layer(observation)
        return out[:, :-1], out[:, -1]


def test_environment_0_is_filmed_and_nobody_else(tmp_path: Path) -> None:
    done = run(tmp_path, video_every=100, n_envs=3, backend="process", num_workers=2)
    names = sorted(file.name for file in (done.folder / "videos").iterdir())
    assert names[:2] == ["final.mp4", "step-000000000.mp4"]
    assert len(names) == 3, "one more after 100 of its 170 steps"


class Endless(gymnasium.Env[Any, Any]):
    """Never over."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        return np.zeros((16, 16, 3), np.uint8)


def test_an_environment_that_never_ends_does_not_hold_up_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.monitor.video.MAX_FRAMES", 6)
    done = run(tmp_path, env=Endless, eval_max_steps=50)
    assert done.evaluation.lengths == (50, 50)
    assert done.evaluation.returns == (50.0, 50.0)
    told = [one for one in caplog.messages if "had not ended after 50 steps" in one]
    assert len(told) == 1, caplog.messages
    assert told[0].startswith("2 of 2 episodes")
    assert (done.folder / "videos/final.mp4").is_file()
    found = shoal.evaluate(done.folder, env=Endless, episodes=1, max_steps=7)
    assert (found.lengths, found.num_cut) == ((7,), 1)
    caplog.clear()
    with PPOTrainer(Endless, eval_max_steps=5) as trainer:
        assert [trainer.evaluate(1).num_cut for _ in range(3)] == [1, 1, 1]
    assert len(caplog.messages) == 1, "it is said once"


class Coin(gymnasium.Env[Any, Any]):
    """Eight times heads or tails, always seen the same."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._age = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self._age += 1
        return np.zeros(2, np.float32), float(action), self._age == 8, False, {}


@pytest.mark.parametrize("is_drawn", [False, True])
def test_actions_of_an_evaluation_are_the_most_probable_or_drawn(
    is_drawn: bool, tmp_path: Path
) -> None:
    learns_nothing = {"env": Coin, "learning_rate": 1e-9, "total_steps": 128}
    done = run(tmp_path, **learns_nothing, eval_episodes=20, eval_stochastic=is_drawn)
    assert (len(set(done.evaluation.returns)) > 1) is is_drawn
    assert done.summary["evaluated_by"] == ("drawn" if is_drawn else "most probable")


class Numberless(Endless):
    """Rewards are no numbers, episodes have three steps, and nobody can see them."""

    def __init__(self) -> None:
        super().__init__()
        self._age = 0

    def step(self, action: Any) -> Any:
        self._age += 1
        return np.zeros(2, np.float32), float("nan"), self._age % 3 == 0, False, {}


def test_rewards_that_are_no_numbers_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run(tmp_path, env=Numberless, n_steps=8, total_steps=64, eval_every=10).folder
    told = [one for one in caplog.messages if "NaN or infinite" in one]
    assert len(told) == 1, caplog.messages
    assert told[0].startswith("at step 16 episode/return_mean and train/policy_loss and")
    assert (folder / "checkpoints/best_model.safetensors").is_file()
    assert not (folder / "videos").exists(), "an empty folder was left"
    text = (folder / "summary.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["evaluation"]["eval/return_mean"] is None
    shoal.train("ppo", env=Numberless, resume_from=folder, total_steps=96, shows=False)


def test_the_final_policy_is_evaluated_once(tmp_path: Path) -> None:
    folder = run(tmp_path, eval_every=1).folder
    rows = read_rows(folder / "metrics.jsonl")
    steps = [row["step"] for row in rows if "eval/return_mean" in row]
    assert steps == [128, 256, 384, 512]


def test_how_much_faster_it_is_than_one_environment_is_measured(tmp_path: Path) -> None:
    summary = run(tmp_path, calibrate=True).summary
    assert summary["speedup"] == pytest.approx(
        summary["steps_per_s"] / summary["one_env_steps_per_s"], rel=0.02
    )


def test_any_module_will_do_as_policy(tmp_path: Path) -> None:
    folder = run(tmp_path, policy=Own).folder
    assert shoal.load(folder, policy=Own).act(np.zeros(4, np.float32)) in (0, 1)
    with pytest.raises(shoal.ConfigError, match="another network"):
        shoal.load(folder)


class Changed(Own):
    """The same, but for what it returns."""

    def __init__(self, space: Any, num_parameters: int, change: Callable[..., Any]) -> None:
        super().__init__(space, num_parameters)
        self._change = change

    def forward(self, observation: Any) -> Any:
        return self._change(*super().forward(observation))


def changed(change: Callable[..., Any]) -> Callable[..., nn.Module]:
    return lambda space, num_parameters: Changed(space, num_parameters, change)


EXPECTED = re.escape("expected parameters of shape [2, 2] and values of shape [2]")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (nn.Linear(4, 3), r"policy is a network, Linear\(.*expected what makes one"),
        (lambda: Own, "cannot be called with the observation space and the number"),
        (lambda space, size: "a network", "policy made 'a network'; expected a torch.nn.Module"),
        (lambda space, size: nn.Identity(), "has no weights"),
        (lambda space, size: nn.Linear(4, 3), rf"returned a tensor of shape \[2, 3\]; {EXPECTED}"),
        (lambda space, size: nn.Linear(5, 3), "raised RuntimeError .* tensor of shape .2, 4.:"),
        (changed(lambda one, _: (one,)), rf"shape \[2, 2\]; {EXPECTED}"),
        (changed(lambda one, two: (one, two[:, None])), rf"shape \[2, 1\]; {EXPECTED}"),
        (changed(lambda one, two: (one, two, one)), EXPECTED),
        (changed(lambda one, two: (two, one)), EXPECTED),
        (changed(lambda one, two: (one, "values")), rf"'values'; {EXPECTED}"),
        (changed(lambda one, two: (one, two.squeeze())), r"shape \[\]; expected .* shape \[1\]"),
    ],
)
def test_a_policy_that_does_not_fit_is_told(policy: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(shoal.ConfigError, match=message):
        run(tmp_path, policy=policy)
    assert not list(tmp_path.iterdir()), "a folder was left"


class Remembering(Own):
    """Says that it remembers, and returns no state."""

    state_size = 3

    def forward(self, observation: Any, state: Any) -> Any:
        return super().forward(observation)


def test_a_policy_that_forgets_to_return_its_state_is_told(tmp_path: Path) -> None:
    with pytest.raises(shoal.ConfigError, match=r"and state of shape \[2, 3\]"):
        run(tmp_path, policy=Remembering)


def test_a_policy_is_asked_without_drawing_on_anybodys_chance(tmp_path: Path) -> None:
    class Noisy(Own):
        def forward(self, observation: Any) -> Any:
            torch.rand(1)
            return super().forward(observation)

    spoken = [run(tmp_path, policy=one).folder for one in (Own, Noisy)]
    mine, theirs = (read(one / "checkpoints/final_model.safetensors") for one in spoken)
    assert all(torch.equal(mine.tensors[name], theirs.tensors[name]) for name in mine.tensors)


def test_a_callback_stops_a_run_and_writes_metrics(tmp_path: Path) -> None:
    def second(progress: Progress) -> None:
        progress.write({"mine/number": 7.0})
        if progress.num_updates == 2:
            progress.stop("enough")

    done = run(tmp_path, callbacks=[second])
    assert (done.summary["steps"], done.summary["stopped_by"]) == (256, "enough")
    rows = read_rows(done.folder / "metrics.jsonl")
    assert [row["step"] for row in rows if "mine/number" in row] == [128, 256]


def test_a_worker_that_dies_changes_nothing_and_is_told(tmp_path: Path) -> None:
    def kill(progress: Progress) -> None:
        if progress.num_updates == 2:
            new = set(psutil.Process().children(recursive=True)) - before
            workers = [one for one in new if not one.children()]
            os.kill(workers[0].pid, signal.SIGKILL)

    before = set(psutil.Process().children(recursive=True))  # other tests' services, say

    where = {"backend": "process", "num_workers": 2}
    calm, hit = run(tmp_path, **where), run(tmp_path, **where, callbacks=[kill])
    mine, theirs = (read(one.folder / "checkpoints/final_model.safetensors") for one in (hit, calm))
    weights = [name for name in mine.tensors if name.startswith("agent.")]
    assert all(torch.equal(mine.tensors[name], theirs.tensors[name]) for name in weights)
    (incident,) = json.loads((hit.folder / "summary.json").read_text())["incidents"]
    assert incident["outcome"] == "replayed"
    assert hit.summary["replays"] == 1
    assert calm.summary["incidents"] == []


def test_the_command_line_says_what_happens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = flags(run_dir=tmp_path, backend="process", num_workers=2, log_interval=5)
    assert main(["train", "ppo", *asked]) == 0
    told = capsys.readouterr().out
    for text in (
        "Using 2 parallel environments for training",
        "Start method: forkserver",
        "Parallel mode: 2 environments",
        "Step ",
        "Reward: ",
        "n_envs: 2",
        "Evaluation: ",
    ):
        assert text in told
    (folder,) = tmp_path.iterdir()
    assert main(["eval", str(folder), "--episodes", "2"]) == 0
    assert "over 2 episodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": "CartPole-v7"}, "there is no environment 'CartPole-v7'"),
        ({"n_envs": 0}, "n_envs must be at least 1"),
        ({"gamma": 1.5}, "gamma must be from 0 to 1"),
        ({"target_kl": 0.0}, "target_kl must be above zero, got 0"),
        ({"value_coef": -0.5}, "value_coef must not be below zero, got -0.5"),
        ({"entropy_coef": float("nan")}, "entropy_coef must not be below zero, got nan"),
        ({"device": "cuda"}, "which this machine does not have"),
        ({"learning_rat": 1.0}, "Did you mean 'learning_rate'"),
        ({"resume_from": "nowhere"}, "nowhere"),
    ],
)
def test_bad_input_is_refused_in_words(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("it does")
    with pytest.raises(shoal.ConfigError, match=message):
        run(tmp_path, **changes)
    assert not list(tmp_path.iterdir()), "a folder was left"


@pytest.mark.parametrize(
    ("group", "changes", "message"),
    [
        (EnvConfig, {"n_envs": 0}, "n_envs must be at least 1, got 0"),
        (EnvConfig, {"overlap": True}, "overlap needs two environments"),
        (GoalConfig, {"total_steps": 0}, "total_steps must be at least 1, got 0"),
        (GoalConfig, {"num_episodes": -1}, "num_episodes must be at least 1, got -1"),
        (OutputConfig, {"eval_episodes": 0}, "eval_episodes must be at least 1"),
        (OutputConfig, {"eval_max_steps": 0}, "eval_max_steps must be at least 1"),
        (OutputConfig, {"log_interval": 0}, "log_interval must be at least 1"),
        (OutputConfig, {"save_every": -1}, "save_every must be at least 0"),
        (OutputConfig, {"save_every_minutes": -1.0}, "save_every_minutes must be a number that is"),
        (OutputConfig, {"save_every_minutes": float("nan")}, "not below zero, got nan"),
        (OutputConfig, {"eval_every": -1}, "eval_every must be at least 0"),
        (OutputConfig, {"video_every": -1}, "video_every must be at least 0"),
        (RunConfig, {"seed": -1}, "seed must be at least 0"),
        (RunConfig, {"num_threads": 0}, "num_threads must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_never_made(
    group: type, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(shoal.ConfigError, match=message):
        group(**changes)


def test_a_checkpoint_of_another_environment_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path).folder
    with pytest.raises(shoal.ConfigError, match="another environment"):
        shoal.train("ppo", resume_from=folder, env="Acrobot-v1", total_steps=600, shows=False)


def test_a_tampered_checkpoint_is_refused(tmp_path: Path) -> None:
    folder = run(tmp_path).folder
    file = folder / "checkpoints/final_model.safetensors"
    held = bytearray(file.read_bytes())
    held[-5] ^= 1
    file.write_bytes(held)
    with pytest.raises(shoal.ConfigError):
        shoal.load(file)


def test_a_space_that_no_network_reads_is_refused(tmp_path: Path) -> None:
    class Wordy(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Text(5)
        action_space = gymnasium.spaces.Discrete(2)

    with pytest.raises(shoal.ConfigError, match="not supported for training"):
        run(tmp_path, env=Wordy)


def test_a_disk_without_room_does_not_end_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, checkpoint: Checkpoint) -> None:
        if checkpoint.about["step"] > 256:
            raise OSError(28, "No space left on device")
        write(path, checkpoint)

    monkeypatch.setattr("shoal.training.save.write", full)
    done = run(tmp_path, eval_every=1, total_steps=512)
    assert done.summary["steps"] == 512
    assert "No space left on device" in caplog.text
    assert read(done.folder / "checkpoints/best_model.safetensors").about["step"] <= 256


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_checkpoint_to_go_on_from(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    asked = flags(run_dir=tmp_path, total_steps=10**9, log_interval=1)
    program = subprocess.Popen(
        [sys.executable, "-m", "shoal", "train", "ppo", *asked],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert program.stdout is not None
    for line in program.stdout:
        if line.startswith("Step"):
            break
    program.send_signal(number)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == code, errors
    assert "Traceback" not in errors
    (folder,) = tmp_path.iterdir()
    kept = read(folder / "checkpoints/final_model.safetensors")
    assert kept.about["step"] % 128 == 0
    more = kept.about["step"] + 128
    done = shoal.train("ppo", resume_from=folder, total_steps=more, shows=False)
    assert done.summary["steps"] == more


def test_a_run_in_two_halves_is_compared_with_one_environment(tmp_path: Path) -> None:
    done = run(tmp_path, total_steps=256, n_envs=2, overlap=True, calibrate=True)
    assert done.summary["one_env_steps_per_s"] > 0.0
    assert done.summary["steps"] >= 256
