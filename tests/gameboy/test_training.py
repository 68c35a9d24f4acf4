"""Does `make train` train on the game, with what its variables say, and tell of it?"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from films import film
from gameboy import cartridges
from shoal.envs.gameboy import GameBoyEnv
from shoal.envs.gameboy.env import RAM_MAP, ROM

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "train_gameboy.py"
STEP = re.compile(
    r"Step [\d,]+/600 \| Episode \d+ \| Reward: -?[\d.]+ \| Length: \d+ \| "
    r"Average\(10\): -?[\d.]+ \| Time: \d+:\d\d"
)
SHORT = ("--total-steps", "600", "--n-steps", "100", "--episode-length", "60")


def train(folder: Path, *arguments: str) -> tuple[list[str], Path]:
    """What it says, and the folder that it leaves."""
    given = [*SHORT, "--run-dir", str(folder), "--eval-episodes", "1", *arguments]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *given],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    (left,) = folder.iterdir()
    return done.stdout.splitlines(), left


def trained_on(folder: Path, *arguments: str) -> Any:
    """The settings of the environment that a run was with."""
    _, left = train(folder, "--total-steps", "100", "--no-calibrate", *arguments)
    return yaml.safe_load((left / "config.yaml").read_text())["envs"]["env_kwargs"]


def test_a_run_says_what_it_does_and_leaves_curves_and_a_video(tmp_path: Path) -> None:
    said, folder = train(tmp_path, "--n-envs", "2", "--no-calibrate")
    begins = [line.partition(":")[0] for line in said]
    for word in ("Initialisation", "Optimisation", "Clean-up"):
        assert word in begins, said
    assert "PARALLEL TRAINING COMPLETE" in said
    assert "Final step: 600" in said
    assert "Total episodes: 10" in said
    assert "Environments used: 2" in said
    (step, *_) = [line for line in said if line.startswith("Step ")]
    assert STEP.fullmatch(step), step
    assert (folder / "checkpoints" / "final_model.safetensors").exists()
    check_curves(folder / "curves.png")
    check_video(folder / "videos" / "final.mp4")


def check_curves(path: Path) -> None:
    """A picture with lines in it, not an empty sheet."""
    image = pytest.importorskip("matplotlib.image")
    shades = image.imread(path)[..., :3]
    assert min(shades.shape[:2]) > 200
    rows = np.ptp(shades, axis=1).max(axis=1) > 0.3
    colored = np.ptp(shades, axis=2) > 0.2
    assert rows.mean() > 0.3
    assert colored.any(axis=0).mean() > 0.2, "curves go across it"


def check_video(path: Path) -> None:
    """The game as it begins, then other frames of it, one a step."""
    found = film(path)
    assert 2 <= len(found.frames) <= 61
    env = GameBoyEnv(render_mode="rgb_array")
    begun = []
    for level in range(1, 4):  # the room is the same in each, but for what lies in it
        env.reset(options={"level": level})
        begun.append(env.render())
    env.close()
    first = found.frames[0]
    scale = first.shape[0] // 144
    assert first.shape == (144 * scale, 160 * scale, 3)
    small = first[::scale, ::scale].astype(int)
    assert min(np.abs(small - one).mean() for one in begun) < 16
    assert any(np.abs(other.astype(int) - first).max() > 64 for other in found.frames[1:])


def test_a_game_of_ones_own_is_learnt_by_its_own_events(tmp_path: Path) -> None:
    """To the right 40 steps of a quarter each, and 5 for being there: it takes ten steps."""
    rom, ram_map = cartridges.write(tmp_path)
    said, folder = train(
        tmp_path / "runs", "--rom", str(rom), "--ram-map", str(ram_map), "--total-steps", "1000",
        "--no-calibrate",
    )  # fmt: skip
    assert any(line.startswith("Step ") for line in said)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    returns = [json.loads(line).get("episode/return", 0.0) for line in lines]
    assert max(returns) == 40 * 0.25 + 5
    assert all(value % 0.25 == 0 for value in returns)
    evaluation = json.loads((folder / "summary.json").read_text())["evaluation"]
    assert evaluation["eval/return_mean"] == 15
    assert evaluation["eval/length_mean"] <= 15


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--rom", str(ROM), "--ram-map", str(RAM_MAP)], "ram"),
        pytest.param(["--rom", str(ROM)], "pixels", marks=pytest.mark.slow),
    ],
)
def test_a_cartridge_of_ones_own_is_trained_on(
    tmp_path: Path, given: list[str], expected: str
) -> None:
    kwargs = trained_on(tmp_path, *given)
    assert kwargs["rom"] == str(ROM)
    assert kwargs["observation"] == expected
    assert kwargs["episode_length"] == 60


def test_other_settings_of_the_game_join_those_of_the_file_and_the_flags(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "env: shoal.envs.gameboy:GameBoyEnv\n"
        "env_kwargs: {observation: ram, frames_per_step: 8, press_frames: 5, rewards: {key: 3}}\n"
    )
    more = ["press_frames=2", "rewards={'damage': -1}"]
    kwargs = trained_on(
        tmp_path / "runs", "--config", str(file), "--rom", str(ROM), "--ram-map", str(RAM_MAP),
        "--env-kwargs", *more,
    )  # fmt: skip
    assert kwargs == {
        "rom": str(ROM),
        "ram_map": str(RAM_MAP),
        "observation": "ram",
        "frames_per_step": 8,
        "press_frames": 2,
        "rewards": {"damage": -1},
        "episode_length": 60,
    }


def test_a_wrong_setting_of_the_game_is_told_by_the_command(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="press_framse"):
        train(tmp_path, "--env-kwargs", "press_framse=2")
    with pytest.raises(AssertionError, match="no_such_file"):
        train(tmp_path, "--config", str(tmp_path / "no_such_file.yaml"))


GIVEN = ("TRAIN_", "MAKE", "MFLAGS", "ARGS")
"""How a `make test` that was told something would tell it to every make below it."""


def planned(target: str, **variables: str) -> dict[str, str]:
    """The flags that a target of the Makefile would train with."""
    words = [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run(
        ["make", "-n", "-o", ".venv/.ready", target, *words],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(GIVEN)},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = [line for line in done.stdout.splitlines() if SCRIPT.name in line]
    flags = shlex.split(line)[2:]
    return dict(zip(flags[::2], flags[1::2], strict=True))


DEFAULTS = {
    "--total-steps": "100000",
    "--n-envs": "1",
    "--episode-length": "500",
    "--n-epochs": "4",
    "--batch-size": "128",
    "--learning-rate": "3e-3",
    "--run-dir": "training_runs",
    "--device": "auto",
}
BRIEF = {
    "--total-steps": "20000",
    "--n-envs": "2",
    "--episode-length": "750",
    "--n-epochs": "6",
    "--learning-rate": "2e-3",
}
VARIABLES = {
    "TRAIN_STEPS": "--total-steps",
    "TRAIN_ENVS": "--n-envs",
    "TRAIN_EPISODE_LENGTH": "--episode-length",
    "TRAIN_UPDATE_EPOCHS": "--n-epochs",
    "TRAIN_BATCH_SIZE": "--batch-size",
    "TRAIN_LEARNING_RATE": "--learning-rate",
    "TRAIN_OUTPUT_DIR": "--run-dir",
    "TRAIN_DEVICE": "--device",
    "TRAIN_OBS": "--observation",
    "TRAIN_ROM": "--rom",
    "TRAIN_RAM_MAP": "--ram-map",
}


@pytest.mark.parametrize(
    ("target", "own"),
    [
        ("train", {}),
        ("train-20k", BRIEF),
        ("train-parallel", {"--n-envs": "4"}),
        ("train-pure-rl", {}),
    ],
)
def test_every_target_has_its_defaults_and_every_variable_wins(target: str, own: Any) -> None:
    assert planned(target) == DEFAULTS | own
    given = {name: f"{place}7" for place, name in enumerate(VARIABLES)}
    assert planned(target, **given) == {VARIABLES[name]: value for name, value in given.items()}
