"""Is what was learnt kept when a run breaks off, whatever broke it?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import shoal  # noqa: E402
from shoal.cli import main  # noqa: E402
from shoal.training.checkpoint import read  # noqa: E402
from shoal.training.loop import Progress  # noqa: E402

SHORT: dict[str, Any] = {
    "n_envs": 2,
    "n_steps": 64,
    "n_epochs": 2,
    "total_steps": 1024,
    "eval_episodes": 2,
    "eval_max_steps": 20,
    "calibrate": False,
    "tensorboard": False,
    "device": "cpu",
}
CARTPOLE: dict[str, Any] = {"env": "CartPole-v1", "backend": "serial"}


def run(folder: Path, **changes: Any) -> Any:
    return shoal.train("ppo", run_dir=folder, shows=False, **{**SHORT, **CARTPOLE, **changes})


def assert_same_weights(one: Path, other: Path) -> None:
    mine, theirs = (read(run / "checkpoints/final_model.safetensors") for run in (one, other))
    for name, tensor in theirs.tensors.items():
        assert torch.equal(mine.tensors[name], tensor), name


BREAKS = '''
import gymnasium
import numpy as np


class Breaks(gymnasium.Env):
    """Episodes of `length` steps (0: none ends); step `at` of its life is one too many."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, at=300, length=10):
        self._at, self._length, self._count = at, length, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        self._count += 1
        if self._count == self._at:
            raise ValueError("the sensor is gone")
        is_over = bool(self._length) and self._count % self._length == 0
        return self._seen(), float(action), is_over, False, {}

    def _seen(self):
        return self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
'''


@pytest.fixture
def breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment that raises, by its name."""
    (tmp_path / "world.py").write_text(BREAKS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "world", raising=False)
    return "world:Breaks"


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_what_was_learnt_before_an_environment_raised_is_kept(
    backend: str, breaks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**SHORT, "env": breaks, "backend": backend, "run_dir": tmp_path / "runs"}
    config = tmp_path / "config.yaml"
    config.write_text("".join(f"{name}: {value}\n" for name, value in given.items()))
    assert main(["train", "ppo", "--config", str(config)]) == 1
    words = capsys.readouterr().err
    (folder,) = (tmp_path / "runs").iterdir()
    assert "env 0 raised ValueError in step" in words
    assert 'raise ValueError("the sensor is gone")' in words, "its traceback was promised"
    assert "until step 512 is saved" in words
    assert f"--resume-from {folder}" in words
    assert (folder / "curves.png").is_file()
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["steps"], summary["is_saved"], summary["evaluation"]) == (512, True, None)
    assert "EnvRaised: env 0 raised ValueError" in summary["error"]
    done = shoal.train("ppo", resume_from=folder, total_steps=640, shows=False)
    assert (done.summary["steps"], done.summary["error"]) == (640, None)


def test_a_run_that_a_callback_broke_off_goes_on_exactly(tmp_path: Path) -> None:
    def fail(progress: Progress) -> None:
        if progress.step == 512:
            raise RuntimeError("mine")

    whole = run(tmp_path / "whole")
    with pytest.raises(RuntimeError, match="mine") as raised:
        run(tmp_path / "broken", callbacks=[fail])
    (folder,) = (tmp_path / "broken").iterdir()
    assert str(folder) in raised.value.__notes__[-1]
    done = shoal.train("ppo", resume_from=folder, shows=False)
    assert_same_weights(done.folder, whole.folder)


def test_a_run_that_broke_off_before_its_first_update_leaves_no_checkpoint(
    breaks: str, tmp_path: Path
) -> None:
    with pytest.raises(shoal.EnvRaised) as raised:
        run(tmp_path / "runs", env=breaks, env_kwargs={"at": 20})
    (folder,) = (tmp_path / "runs").iterdir()
    assert not list((folder / "checkpoints").iterdir())
    assert not [note for note in raised.value.__notes__ if "--resume-from" in note]
    assert json.loads((folder / "summary.json").read_text())["is_saved"] is False


def test_a_run_whose_episodes_never_end_is_saved_by_the_clock(breaks: str, tmp_path: Path) -> None:
    def kill(progress: Progress) -> None:
        if progress.step == 512:
            raise KeyboardInterrupt  # as a second Ctrl-C: at once

    endless: dict[str, Any] = {"env": breaks, "env_kwargs": {"at": 0, "length": 0}}
    whole = run(tmp_path / "whole", **endless)
    assert not (whole.folder / "checkpoints/latest_model.safetensors").exists()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "runs", **endless, save_every_minutes=1e-9, callbacks=[kill])
    (folder,) = (tmp_path / "runs").iterdir()
    latest = folder / "checkpoints/latest_model.safetensors"
    assert read(latest).about["step"] == 512
    done = shoal.train("ppo", resume_from=folder, shows=False)
    assert_same_weights(done.folder, whole.folder)
    assert not latest.exists(), "there is a later one"


def test_a_run_is_not_saved_by_the_clock_where_that_is_not_wanted(tmp_path: Path) -> None:
    seen: list[set[str]] = []

    def look(progress: Progress) -> None:
        seen.append({file.stem for file in tmp_path.glob("*/checkpoints/*")})

    run(tmp_path, save_every_minutes=0.0, callbacks=[look])
    assert seen
    assert not any("latest_model" in names for names in seen)
