"""Does `scripts/custom_env_main.py` train, film environment 0 only, and begin one run at most?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")
pytest.importorskip("pettingzoo")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "custom_env_main.py"
WORLD = "size: 4\nmax_steps: 6\nagents: 2\n"


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script, on a small world and for a few steps unless told otherwise."""
    world = folder / "world.yaml"
    world.write_text(WORLD)
    given = ["--env-config", world, "--folder", folder / "run", "--n-steps", "64"]
    return subprocess.run(
        [sys.executable, SCRIPT, *given, *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
    )


@pytest.mark.parametrize(("num_envs", "where"), [(1, "this process"), (3, "worker processes")])
def test_it_trains_with_one_environment_and_with_several(
    num_envs: int, where: str, tmp_path: Path
) -> None:
    done = run(tmp_path, "--num-envs", str(num_envs), "--total-timesteps", str(128 * num_envs))
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith(f"environments: {num_envs}, in ")
    assert first.endswith(where)
    assert "ep_rew_mean" in done.stdout
    assert last.startswith(f"{128 * num_envs} steps in ")
    assert (tmp_path / "run" / "model.zip").exists()
    assert len(list((tmp_path / "run" / "tensorboard").rglob("events.*"))) == 1
    # A film of the first episode, from one environment however many there are.
    films = [path.name for path in (tmp_path / "run" / "videos").glob("*.mp4")]
    assert films == ["step-000000000.mp4"]


def test_there_need_be_no_videos(tmp_path: Path) -> None:
    done = run(tmp_path, "--num-envs", "1", "--total-timesteps", "64", "--video-every", "0")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "videos").exists()


def test_a_file_that_is_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "--env-config", str(tmp_path / "missing.yaml"))
    assert done.returncode == 1
    assert done.stderr.startswith("custom_env_main: ")
    assert "missing.yaml cannot be read" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--num-envs 0", "--num-envs is 0; expected at least 1."),
        ("--num-envs -2", "--num-envs is -2; expected at least 1."),
        ("--num-envs 1 --n-steps 1", "PPO needs two"),
        ("--n-steps 0", "--n-steps is 0; expected at least 1."),
        ("--policy-type Foo", "--policy-type is 'Foo'; expected 'MlpPolicy'"),
        ("--video-every -1", "--video-every is -1; expected at least 0."),
    ],
)
def test_wrong_arguments_are_told_before_anything_starts(
    arguments: str, words: str, tmp_path: Path
) -> None:
    done = run(tmp_path, *arguments.split())
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_without_weights_and_biases_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "wandb.py").write_text("raise ImportError('none here')\n")
    path = os.pathsep.join([str(tmp_path / "hidden"), str(ROOT / "src")])
    done = run(tmp_path, "--wandb", PYTHONPATH=path)
    assert done.returncode == 1
    assert 'wandb cannot be imported (none here): pip install "shoal-rl[wandb]"' in done.stderr


def test_there_is_one_run_of_weights_and_biases_whatever_the_number_of_workers(
    tmp_path: Path,
) -> None:
    pytest.importorskip("wandb")
    kinds = ("CACHE", "CONFIG", "DATA", "ARTIFACT")
    apart = {f"WANDB_{kind}_DIR": str(tmp_path / kind.lower()) for kind in kinds}
    done = run(
        tmp_path,
        *("--num-envs", "4", "--total-timesteps", "512", "--wandb", "fish"),
        WANDB_MODE="offline",
        **apart,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("run-*.wandb"))) == 1
    # What TensorBoard gets, episodes among it; and what the script was told.
    from test_monitor_wandb import history, records

    returns = [row["rollout/ep_rew_mean"] for row in history(tmp_path) if "global_step" in row]
    assert len(returns) == 2  # updates, of 4 times 64 steps
    assert all(np.isfinite(float(one)) for one in returns)
    (made,) = [record.run for record in records(tmp_path) if record.HasField("run")]
    assert made.project == "fish"
    assert {item.key: item.value_json for item in made.config.update}["num_envs"] == '"4"'
