"""Do checkpoints of earlier versions still load, and go on?

`data/checkpoint-39edcfd.safetensors` is the final model of a run at that commit:

    shoal train ppo --seed 5 --n-envs 2 --backend serial --n-steps 16 --n-epochs 1 --total-steps 96
        --hidden-sizes 4 --normalize-observations --normalize-rewards --device cpu
        --eval-episodes 1 --save-every 0 --eval-every 0 --no-calibrate --no-tensorboard
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import shoal
from shoal.training.checkpoint import read

OLD = sorted((Path(__file__).parent / "data").glob("checkpoint-*.safetensors"))


def test_there_is_one() -> None:
    assert OLD


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_an_old_checkpoint_acts_and_is_evaluated(old: Path) -> None:
    assert shoal.load(old).act(np.zeros(4, np.float32)) in (0, 1)
    assert len(shoal.evaluate(old, episodes=2).returns) == 2


@pytest.mark.parametrize("old", OLD, ids=lambda path: path.stem)
def test_a_run_goes_on_from_an_old_checkpoint(
    old: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    done = shoal.train("ppo", resume_from=old, total_steps=160, run_dir=tmp_path, shows=False)
    assert done.summary["steps"] == 160
    assert "could not be replayed" not in caplog.text
    before, after = read(old), read(done.folder / "checkpoints/final_model.safetensors")
    for name in ("agent.normals.0.count", "learner.num_steps"):
        assert after.tensors[name] > before.tensors[name] > 0, name
    assert done.summary["episodes"] >= before.about["kept"]["source"]["episodes"]["num_ended"] == 4
