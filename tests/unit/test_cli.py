"""The command line, as a user meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shoal
from shoal.cli import main


def test_a_sound_environment_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "CartPole-v1"]) == 0
    assert capsys.readouterr().out.startswith("CartPole-v1 passes: 0 errors")


def test_an_unsound_one_fails_and_every_breach_is_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unsound.py").write_text(
        "from shoal.testing import Saboteur\ndef make():\n    return Saboteur('wrong_shape')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["check", "unsound:make", "--steps", "20"]) == 1
    out = capsys.readouterr().out
    assert "unsound:make does not pass" in out
    assert "wrong shape" in out


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("CartPol-v1", "Did you mean 'CartPole-v1'?"),
        ("no_such_module:make", "No module named 'no_such_module'"),
        ("shoal.testing:CountingWrld", "Did you mean 'CountingWorld'?"),
    ],
)
def test_an_unknown_environment_is_explained(
    capsys: pytest.CaptureFixture[str], name: str, says: str
) -> None:
    assert main(["check", name]) == 2
    assert says in capsys.readouterr().err


def test_wrong_usage_exits_with_2() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["chek"])
    assert caught.value.code == 2


def test_it_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shoal", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("shoal 0.")


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A folder where every user of the machine may put modules."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    for name in ("zipfile.py", "planted.py"):
        (folder / name).write_text("raise SystemExit('code of another user')\n")
    return folder


@pytest.mark.parametrize("arguments", [("replay", "some.capsule"), ("check", "planted:make")])
def test_modules_in_a_folder_open_to_all_are_not_used(
    arguments: tuple[str, str], open_to_all: Path
) -> None:
    (open_to_all / "some.capsule").write_bytes(b"nothing")
    (open_to_all / "some.capsule").chmod(0o600)
    # As the installed command: Python itself does not look in the working folder then.
    program = "import sys; from shoal.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, *arguments],
        cwd=open_to_all,
        env=os.environ | {"PYTHONPATH": str(Path(shoal.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"modules in {open_to_all} are not used" in done.stderr
    assert "code of another user" not in done.stderr
