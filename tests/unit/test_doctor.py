"""Does `shoal doctor` find what is wrong, say what to do, and pass where all is well?"""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.cli import doctor as command
from shoal.cli import main
from shoal.engine.memory import Memory
from shoal.errors import WorkerDied
from shoal.testing import CountingWorld, doctor
from shoal.testing.doctor import Sign

ROOT = Path(__file__).parents[2]


def sign_of(name: str) -> Sign:
    (found,) = [sign for sign in doctor.examine() if sign.name == name]
    return found


@pytest.fixture(autouse=True)
def _no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes seconds to import, and is looked at in one test only."""
    monkeypatch.setattr(doctor, "_gpu", lambda: Sign("GPU", "not looked for"))


# --- all is well -----------------------------------------------------------------------------


def test_a_sound_installation_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "ALL TESTS PASSED!"
    for name in ("cores", "memory", "descriptors", "start methods", "gymnasium", "hybrid"):
        assert f"\n  {name} " in out
    for method in doctor.start_methods():
        assert f"process ({method})" in out


def test_the_script_is_the_same(tmp_path: Path) -> None:
    """With a PyTorch that is found and broken, which is not Shoal's affair."""
    (tmp_path / "torch.py").write_text("raise OSError('no driver')\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "test_parallel_env.py"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "ALL TESTS PASSED!"
    assert "PyTorch cannot tell (OSError: no driver)" in done.stdout
    assert done.stderr == ""


def test_versions_are_told_without_imports() -> None:
    program = (
        "import sys; from shoal.testing import doctor; names = list(doctor.packages()); "
        "print({'torch', 'mujoco', 'matplotlib', 'ray'} & set(sys.modules), len(names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("set()")
    assert int(done.stdout.split()[-1]) >= 3


# --- each problem has a sentence -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function", "value", "says"),
    [
        ("cores", "usable_cores", 1, "docker run --cpus"),
        ("memory", "free_memory_mb", 100.0, "fewer workers"),
        ("descriptors", "free_descriptors", 12, "ulimit -n 4096"),
    ],
)
def test_what_is_scarce_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, name: str, function: str, value: Any, says: str
) -> None:
    assert says not in sign_of(name).advice
    monkeypatch.setattr(doctor, function, lambda: value)
    sign = sign_of(name)
    assert says in sign.advice
    assert not sign.is_fatal


def test_a_quota_is_named_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "usable_cores", lambda: 1)
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 0.5)
    sign = sign_of("cores")
    assert "by a quota of 0.5" in sign.value
    assert "by a quota" in sign.advice


@pytest.mark.parametrize("function", ["free_memory_mb", "free_descriptors"])
def test_what_cannot_be_known_is_unknown(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    monkeypatch.setattr(doctor, function, lambda: None)
    assert [sign.value for sign in doctor.examine()].count("unknown") == 1


def test_a_small_shm_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor, "LITTLE_SHM_MB", float("inf"))
    assert "--shm-size" in doctor._shm(str(tmp_path)).advice
    assert "not there" in doctor._shm(str(tmp_path / "nowhere")).value


def test_without_shared_memory_it_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> Memory:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Memory, "create", refuse)
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert "No space left on device" in out
    assert "TMPDIR" in out
    assert "FAILED: shared memory, process (forkserver)" in out
    assert "ALL TESTS PASSED!" not in out
    assert "Traceback" not in out + err


def test_no_process_backend_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "start_methods", tuple)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "backend='thread' or 'serial'" in out
    assert "1 thing to know" in out
    assert out.splitlines()[-1] == "ALL TESTS PASSED!"


def test_torch_is_not_looked_for_where_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "not installed" in doctor._gpu().value


# --- backends that do not agree, or do not run -----------------------------------------------

_rolls = itertools.count()


class Unsteady(CountingWorld):
    """Depends on more than its seed: no two pools agree."""

    def __init__(self) -> None:
        super().__init__(tag=next(_rolls) + os.getpid())


def test_other_results_than_serial_do_not_pass() -> None:
    signs = list(doctor.try_backends(Unsteady))
    assert not signs[0].is_fatal, "which is what others are compared with"
    assert all(sign.is_fatal for sign in signs[1:])
    assert "other results than serial" in signs[1].value


def test_a_backend_that_does_not_run_is_named_with_its_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = doctor.trace_of

    def fail(world: Any, backend: str, method: str | None) -> str:
        if method == "spawn":
            raise WorkerDied("worker 0 was killed by SIGKILL.\nmore", worker=0)
        return real(world, backend, method)

    monkeypatch.setattr(doctor, "trace_of", fail)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "1 FAILED: process (spawn). What to do:" in out
    assert "worker 0 was killed by SIGKILL." in out
    assert "more" not in out.splitlines()


def test_the_last_line_says_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    bad = [Sign("memory", "none", "Buy some.", is_fatal=True), Sign("cores", "1", "Wait.")]
    assert command._conclude(bad) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "  memory: Buy some."


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": [1, 2]}, {"a": [1, 3]}),
        ({"a": 1}, {"b": 1}),
        ({"a": 1}, {"a": 1.0}),
        ([None], ["None"]),
    ],
)
def test_different_results_have_different_digests(one: Any, other: Any) -> None:
    import hashlib

    digests = []
    for value in (one, other, one):
        digest = hashlib.sha256()
        doctor._digest(digest, value)
        digests.append(digest.hexdigest())
    assert digests[0] == digests[2] != digests[1]
