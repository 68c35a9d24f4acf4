"""Is progress shown where somebody looks: on a terminal, and in a notebook?"""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

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


WIDGET = "application/vnd.jupyter.widget-view+json"


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
    return "\n".join(_said(book.cells[0].outputs, client.widget_state))


def _said(outputs: Iterable[Any], widgets: Mapping[str, Any]) -> Iterator[str]:
    """The text of what is shown; of a widget, what stands in it in the end."""
    for one in outputs:
        data = one.get("data", {})
        if WIDGET in data:
            yield from _said(widgets[data[WIDGET]["model_id"]]["outputs"], widgets)
        else:
            yield one.get("text") or data["text/plain"]


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


def test_a_notebook_with_widgets_draws_over_itself(tmp_path: Path) -> None:
    pytest.importorskip("ipywidgets")
    shown = shown_by(CELL.format(more=""), tmp_path)
    assert shown.count("Step 1,024/1,024") == 1
    assert "Step 512/1,024" not in shown, "it was drawn over"
    assert "gradient_norm=" in shown, "which the lines do not tell"


def test_a_notebook_without_widgets_is_told_line_by_line(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['ipywidgets'] = None\n"
    shown = shown_by(hidden + CELL.format(more=""), tmp_path)
    assert "Step 512/1,024" in shown
    assert "gradient_norm=" not in shown


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


@pytest.mark.slow
def test_the_pictures_of_the_documentation_are_made(tmp_path: Path) -> None:
    for name in ("torch", "matplotlib", "moviepy", "pygame"):
        pytest.importorskip(name)
    script = Path(__file__).parents[2] / "scripts" / "training_pictures.py"
    command = [sys.executable, str(script), "--steps", "4096", "--out", str(tmp_path)]
    subprocess.run(command, check=True, timeout=100)
    assert (tmp_path / "training-display.svg").read_text().count("Reward") == 1
    for name in ("training-curves.png", "training-frame.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
