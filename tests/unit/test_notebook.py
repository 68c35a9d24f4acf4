"""Is progress shown where somebody looks: on a terminal, and in a notebook?"""

from __future__ import annotations

import builtins
import io
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("rich")

import shoal
from shoal.monitor.console import is_seen

CELL = """
import shoal
run = shoal.train(
    env="CartPole-v1", n_envs=2, backend="serial", n_steps=64, n_epochs=1, total_steps=1024,
    eval_episodes=1, log_interval=5, calibrate=False, tensorboard=False, device="cpu",
    run_dir="runs"{more},
)
"""


def shown_by(cell: str, folder: Path) -> str:
    """All that a notebook with this one cell shows, as text."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("torch")
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    path = os.pathsep.join([str(Path(shoal.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    resources = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(book, timeout=100, kernel_name="python3", resources=resources)
    client.execute(env={**os.environ, "PYTHONPATH": path})
    outputs = book.cells[0].outputs
    return "\n".join(one.get("text") or one["data"]["text/plain"] for one in outputs)


def test_a_notebook_shows_progress(tmp_path: Path) -> None:
    shown = shown_by(CELL.format(more=""), tmp_path)
    for words in (
        "Using 2 parallel environments for training",
        "Step 1,024/1,024",
        "Reward: ",
        "Evaluation: ",
        "Summary",
        "final model",
    ):
        assert words in shown


def test_a_notebook_can_do_without(tmp_path: Path) -> None:
    shown = shown_by(CELL.format(more=", shows=False"), tmp_path)
    assert "Step" not in shown
    assert "Summary" not in shown
    assert (tmp_path / "runs").is_dir()


class ZMQInteractiveShell:
    """Of this name is the shell behind a notebook."""


def test_who_looks_at_a_notebook_looks_at_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert not is_seen()
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    assert is_seen()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="terminals of one's own")
def test_a_terminal_is_seen_and_a_file_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.openpty()
    with open(theirs, "w") as terminal, open(tmp_path / "log", "w") as file:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert is_seen()
        monkeypatch.setattr(sys, "stdout", file)
        assert not is_seen()
        monkeypatch.undo()
    os.close(ours)
