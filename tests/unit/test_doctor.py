"""Does `shoal doctor` find what is wrong, say what to do, and pass where all is well?"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import itertools
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from shoal.cli import doctor as command
from shoal.cli import main
from shoal.engine.memory import Memory
from shoal.errors import WorkerDied
from shoal.testing import CountingWorld, doctor, trials
from shoal.testing.doctor import Sign
from shoal.testing.trials import Trace

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
    for name in ("auto", "team (serial)", "team (process)", "turns (serial)", "turns (process)"):
        assert re.search(rf"\n  {re.escape(name)} +ok", out), name
    chosen = re.search(r"\n  auto +ok \((\w+), ", out)
    assert chosen is not None
    assert chosen[1] in ("serial", "hybrid", "process"), "it says where they ran"


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
    monkeypatch.setattr(trials, "start_methods", tuple)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "backend='thread' or 'serial'" in out
    assert "1 thing to know" in out
    assert out.splitlines()[-1] == "ALL TESTS PASSED!"


# --- what there is ----------------------------------------------------------------------------


def test_memory_and_descriptors_are_told_with_their_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "free_memory_mb", lambda: 1500.0)
    monkeypatch.setattr(doctor, "total_memory_mb", lambda: 24_000.0)
    assert sign_of("memory").value == "1,500 MB free of 24,000"
    monkeypatch.setattr(doctor, "free_descriptors", lambda: 900)
    for limits, said in (
        ((1024, 4096), "limit 1,024, hard limit 4,096"),
        ((1024, -1), "limit 1,024, hard limit none"),
    ):
        monkeypatch.setattr(doctor, "descriptor_limits", lambda limits=limits: limits)
        assert sign_of("descriptors").value == f"900 files can still be opened ({said})"


def test_every_package_is_looked_for_by_the_name_that_is_installed() -> None:
    """PufferLib comes as `pufferlib-core` where it is built for this project."""
    known = {"pufferlib-core", "supersuit", "sb3-contrib", "pettingzoo", "mpe2", "pyboy", "ray"}
    assert known <= set(doctor.PACKAGES)


@pytest.fixture
def _look(monkeypatch: pytest.MonkeyPatch) -> None:
    """For GPUs, after all."""
    monkeypatch.undo()


@pytest.mark.usefixtures("_look")
def test_without_torch_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for found, said in ((["NVIDIA T4", "NVIDIA T4"], "NVIDIA T4, NVIDIA T4"), ([], "none")):
        monkeypatch.setattr(doctor, "gpus", lambda found=found: found)
        assert doctor._gpu().value == f"{said} (PyTorch is not installed)"


@pytest.mark.usefixtures("_look")
def test_a_gpu_that_torch_cannot_use_is_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_for(monkeypatch, count=0)
    monkeypatch.setattr(doctor, "gpus", lambda: ["NVIDIA T4"])
    sign = doctor._gpu()
    assert sign.value == "NVIDIA T4, which PyTorch cannot use"
    assert "built for CUDA" in sign.advice
    assert not sign.is_fatal


@pytest.mark.usefixtures("_look")
def test_looking_at_a_gpu_does_not_initialise_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the trial with start_method="fork" would fail wherever there is one."""
    torch = stands_for(monkeypatch, count=2)
    monkeypatch.setattr(doctor, "gpus", lambda: ["NVIDIA T4", "NVIDIA T4"])
    assert doctor._gpu().value == "2 that PyTorch can use (NVIDIA T4, NVIDIA T4)"
    assert not torch.cuda.initialised


def stands_for(monkeypatch: pytest.MonkeyPatch, count: int) -> Any:
    """PyTorch on a machine with so many GPUs; naming one initialises CUDA there."""

    class Cuda:
        initialised = False

        def device_count(self) -> int:
            return count

        def get_device_name(self, number: int) -> str:
            self.initialised = True
            return f"GPU {number}"

    torch = types.ModuleType("torch")
    torch.cuda = Cuda()  # type: ignore[attr-defined]
    torch.__spec__ = importlib.machinery.ModuleSpec("torch", None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def test_the_driver_names_gpus(tmp_path: Path) -> None:
    for number, model in enumerate(["NVIDIA H200", "NVIDIA T4"]):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
        text = f"Model: \t\t {model}\nIRQ:   \t\t 10\n"
        (tmp_path / f"0000:0{number}:00.0" / "information").write_text(text)
    assert sorted(doctor.gpus(tmp_path)) == ["NVIDIA H200", "NVIDIA T4"]


@pytest.mark.parametrize(("code", "found"), [(0, ["NVIDIA T4", "NVIDIA T4"]), (9, [])])
def test_nvidia_smi_names_gpus_where_the_driver_has_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, found: list[str]
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho NVIDIA T4\necho NVIDIA T4\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert doctor.gpus(tmp_path / "nowhere") == found


def test_without_any_of_them_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.gpus(tmp_path / "nowhere") == []


def test_without_pettingzoo_several_agents_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (sign,) = trials.try_agents()
    assert sign.value == "not tried: PettingZoo is not installed"
    assert not sign.is_fatal


def test_a_team_that_comes_out_otherwise_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trials.trace_of_team
    spoilt = {"process": Trace("something else")}
    monkeypatch.setattr(trials, "trace_of_team", lambda place: spoilt.get(place) or real(place))
    signs = {sign.name: sign for sign in trials.try_agents()}
    assert [name for name, sign in signs.items() if sign.is_fatal] == ["team (process)"]


# --- backends that do not agree, or do not run -----------------------------------------------

_rolls = itertools.count()


class Unsteady(CountingWorld):
    """Depends on more than its seed: no two pools agree."""

    def __init__(self) -> None:
        super().__init__(tag=next(_rolls) + os.getpid())


def test_other_results_than_serial_do_not_pass() -> None:
    signs = list(trials.try_backends(Unsteady))
    assert not signs[0].is_fatal, "which is what others are compared with"
    assert all(sign.is_fatal for sign in signs[1:])
    assert "other results than serial" in signs[1].value


def test_a_backend_that_does_not_run_is_named_with_its_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = trials.trace_of

    def fail(world: Any, backend: str, method: str | None) -> Trace:
        if method == "spawn":
            raise WorkerDied("worker 0 was killed by SIGKILL.\nmore", worker=0)
        return real(world, backend, method)

    monkeypatch.setattr(trials, "trace_of", fail)
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
        trials._digest(digest, value)
        digests.append(digest.hexdigest())
    assert digests[0] == digests[2] != digests[1]
