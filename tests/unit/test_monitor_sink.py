"""Does a run outlive a sink that fails, and has every metric a meaning?"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shoal import monitor
from shoal.monitor import METRICS, JsonLines, Metrics, Steadfast, describe
from shoal.monitor.jsonl import read

ROOT = Path(__file__).parents[2]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "shoal"]


def test_a_full_disk_is_one_warning_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    sink = Steadfast(JsonLines("/dev/full"))
    for step in range(5):
        sink.write(step, {"a/b": 1.0})
    sink.close()
    (warning,) = said(caplog)
    assert "/dev/full" in warning
    assert "No space left on device" in warning
    assert "The run goes on" in warning
    assert caplog.records[0].levelno == logging.WARNING


def test_it_is_said_once_when_writing_works_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    sink = Steadfast(JsonLines(path))
    sink.write(1, {})
    sink.write(2, {})
    path.unlink()
    sink.write(3, {})
    sink.write(4, {})
    assert [row["step"] for row in read(path)] == [3, 4]
    _, again = said(caplog)
    assert again == f"metrics are written to {path} again; missing there: 2."
    sink.close()


def test_a_second_outage_is_told_like_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    sink = Steadfast(JsonLines(path))
    for _ in range(2):
        path.parent.write_text("a file where the folder should be")
        sink.write(1, {})
        path.parent.unlink()
        sink.write(2, {})
        sink.close()
        path.unlink()
        path.parent.rmdir()
    assert [message.split()[0] for message in said(caplog)] == ["cannot", "metrics"] * 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_no_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o500)
    Steadfast(JsonLines(tmp_path / "metrics.jsonl")).write(1, {})
    tmp_path.chmod(0o700)
    assert len(said(caplog)) == 1


class Faulty:
    """Fails in the way it is told to."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    def write(self, step: int, metrics: Metrics) -> None:
        raise self.problem

    def close(self) -> None:
        raise self.problem


def test_a_close_that_fails_is_no_end_either(caplog: pytest.LogCaptureFixture) -> None:
    Steadfast(Faulty(OSError("stale handle"))).close()
    (warning,) = said(caplog)
    assert "stale handle" in warning


def test_a_mistake_is_not_taken_for_a_full_disk() -> None:
    with pytest.raises(KeyError):
        Steadfast(Faulty(KeyError("x"))).write(1, {})


# --- names -------------------------------------------------------------------------------------


def test_every_metric_is_named_by_group_and_has_one_line_of_meaning() -> None:
    for name, meaning in METRICS.items():
        assert re.fullmatch(r"[a-z]+/[a-z_]+[0-9]*", name)
        assert meaning
        assert "\n" not in meaning
    assert len(set(METRICS.values())) == len(METRICS)


def test_the_metrics_of_the_loop_are_all_there() -> None:
    groups: dict[str, set[str]] = {}
    for name in METRICS:
        group, _, short = name.partition("/")
        groups.setdefault(group, set()).add(short)
    returns = {"return", "return_mean", "return_mean_10"}
    assert groups["episode"] == returns | {"length", "length_mean"}
    assert groups["time"] == {"stepping", "inference", "learning"}
    assert groups["eval"] == {"return_mean", "return_std", "length_mean", "episodes"}
    assert set(groups) == {"run", "episode", "train", "engine", "time", "eval"}


def test_an_unknown_metric_describes_itself() -> None:
    assert describe("team/height") == "team/height"
    assert describe("eval/episodes") == "episodes of the evaluation"


# --- what is imported --------------------------------------------------------------------------

OPTIONAL = {"torch", "wandb", "tensorboard", "matplotlib", "moviepy", "rich"}
LOADED = """
import json, sys
import {module}
print(json.dumps(sorted({{name.split(".")[0] for name in sys.modules}})))
"""


def loaded_by(module: str) -> set[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(done.stdout))


def test_optional_packages_are_imported_on_use_only() -> None:
    assert loaded_by("shoal.monitor") & OPTIONAL == set()
    assert loaded_by("shoal.monitor.console") & OPTIONAL == {"rich"}


def test_every_public_name_can_be_had() -> None:
    for name in monitor.__all__:
        assert getattr(monitor, name) is not None
    with pytest.raises(AttributeError, match="Consol"):
        monitor.Consol  # noqa: B018
