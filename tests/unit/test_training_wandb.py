"""Is a training one run of Weights & Biases, whatever its workers and however often it goes on?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import shoal
from shoal.cli import main

SHORT = """
    train ppo --wandb --env CartPole-v1 --n-envs 4 --backend process --num-workers 2 --n-steps 32
    --n-epochs 1 --eval-episodes 1 --no-calibrate --no-tensorboard --device cpu
"""


def test_its_absence_is_told_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    asked = ["--env", "nowhere:at_all", "--run-dir", str(tmp_path / "runs")]
    assert main(["train", "ppo", "--wandb", *asked]) == 2
    assert 'pip install "shoal-rl[wandb]"' in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    for kind in ("CACHE", "CONFIG", "DATA", "ARTIFACT"):
        monkeypatch.setenv(f"WANDB_{kind}_DIR", str(tmp_path / kind.lower()))


def runs_in(folder: Path) -> list[str]:
    """Ids of the runs that wandb has written into it; each time it began is one entry."""
    return [file.stem.removeprefix("run-") for file in folder.rglob("run-*.wandb")]


@pytest.mark.usefixtures("_offline")
def test_a_training_with_workers_is_one_run_also_when_it_goes_on(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert main([*SHORT.split(), "--total-steps", "256", "--run-dir", str(runs)]) == 0
    (first,) = runs.iterdir()
    (only,) = runs_in(first)
    assert (first / "wandb_id.txt").read_text() == f"{only}\n"
    shoal.train("ppo", resume_from=first, total_steps=384, shows=False)
    assert runs_in(first) == [only, only]
    file = first / "checkpoints/final_model.safetensors"
    other = shoal.train("ppo", resume_from=file, total_steps=512, shows=False).folder
    (another,) = runs_in(other)
    assert another != only, "a run of its own"
