"""Does `scripts/simple_push_v3_train.py` train two policies as configured, and leave them?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mpe2")

import shoal

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "simple_push_v3_train.py"


def test_it_trains_a_policy_for_each_agent(tmp_path: Path) -> None:
    few = "--total-steps 400 --n-envs 2 --n-epochs 1 --backend serial --no-calibrate"
    done = subprocess.run(
        [sys.executable, SCRIPT, *few.split(), "--run-dir", tmp_path / "runs"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    config = (run / "config.yaml").read_text()
    assert "mpe2.simple_push_v3:parallel_env" in config
    assert "separate" in config
    assert "gamma: 0.95" in config
    members = shoal.load(run)
    for name, size in (("adversary_0", 8), ("agent_0", 19)):
        assert members.act(np.zeros(size, np.float32), agent=name) in range(5)
