"""Do benchmarks of Game Boys keep what they have found, and what it was found with?"""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

import shoal
from benchmarks.gameboy import CLOSING, Figures, keep, novelty, train
from shoal.measure import Record
from shoal.measure.fingerprint import checked_out


def test_a_record_names_commit_and_versions(tmp_path: Path) -> None:
    path = keep(Record.begin(["python", "-m", "it"]), "it", [{"value": 1 / 3}], tmp_path)
    kept = json.loads(path.read_text())
    assert kept["machine"]["commit"] == checked_out(Path(shoal.__file__))
    assert kept["machine"]["packages"]["pyboy"] == metadata.version("pyboy")
    assert kept["asked"] == "python -m it"
    assert kept["figures"] == [{"value": 0.33333}]


def test_novelty_is_told_of_every_player() -> None:
    figures = Figures()
    lines = list(novelty(figures, 1))
    assert len(lines) == 2 + len(figures) == 10
    by_name = {(one["novelty"], one["player"]): one for one in figures}
    waiting, exploring = (
        by_name["screen", name] for name in ("waiting beside a crab", "scripted, exploring")
    )
    assert (waiting["return"], waiting["rooms"], waiting["steps"]) == (1, 2, 500)
    assert exploring["return"] == exploring["rooms"] - 1 > 2


@pytest.mark.slow
def test_training_is_measured_as_the_makefile_has_it() -> None:
    figures = Figures()
    lines = list(train(figures, 1))
    run, summary = figures
    assert run.keys() == {"run", *CLOSING}
    assert abs(run["steps_per_s"] * run["training_s"] / 20_000 - 1) < 0.05
    assert summary["median_steps_per_s"] == run["steps_per_s"]
    assert "times 1,360" in lines[-1]
