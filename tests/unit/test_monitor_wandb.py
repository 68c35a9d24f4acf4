"""Is there exactly one run of Weights & Biases, with everything in it? Asked offline."""

from __future__ import annotations

import importlib
import os
import pickle
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError
from shoal.monitor import WeightsAndBiases


def test_its_absence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r'pip install "shoal-rl\[wandb\]"'):
        WeightsAndBiases("fish")


wandb = pytest.importorskip("wandb")


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for kind in ("CACHE", "CONFIG", "DATA", "ARTIFACT"):
        monkeypatch.setenv(f"WANDB_{kind}_DIR", str(tmp_path / kind.lower()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def sink(folder: Path) -> Iterator[WeightsAndBiases]:
    made = WeightsAndBiases("fish", "first", {"gamma": 0.99}, folder)
    yield made
    made.close()


def runs(folder: Path) -> list[Path]:
    return list(folder.rglob("*run-*.wandb"))


def records(folder: Path) -> list[Any]:
    """What the file of the one run holds, once its end has been written by wandb's own process."""
    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    (file,) = runs(folder)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [messages.Record.FromString(data) for data in log_records(file.read_bytes())]
        if found and found[-1].HasField("exit"):
            return found
    pytest.fail(f"{file} has no end")


def log_records(data: bytes) -> Iterator[bytes]:
    """Of a LevelDB log: after 7 bytes of head, blocks of 32 KiB; a record may be in pieces."""
    block_bytes, head_bytes, last = 1 << 15, 7, {1, 4}
    place, found = head_bytes, b""
    while place + head_bytes <= len(data):
        if block_bytes - place % block_bytes < head_bytes:
            place += block_bytes - place % block_bytes
        _, size, kind = struct.unpack_from("<IHB", data, place)
        place += head_bytes + size
        if place > len(data):  # it is being written
            return
        found += data[place - size : place]
        if kind in last:
            yield found
            found = b""


def history(folder: Path) -> list[dict[str, str]]:
    """Of each row: names with their values as JSON."""
    kept = [record.history for record in records(folder) if record.HasField("history")]
    return [
        {item.key or "/".join(item.nested_key): item.value_json for item in row.item}
        for row in kept
    ]


def test_a_training_is_one_run_with_every_row(sink: WeightsAndBiases, folder: Path) -> None:
    sink.write(2048, {"episode/return": 21.5, "team/height": 3.0})
    sink.write(2048, {"eval/return_mean": 20.0})
    sink.write(4096, {"episode/return": 22.5})
    sink.close()
    sink.close()
    assert len(runs(folder)) == 1
    first, second = history(folder)
    assert first["_step"] == "2048"
    assert first["episode/return"] == "21.5"
    assert first["team/height"] == "3"
    assert first["eval/return_mean"] == "20"
    assert (second["_step"], second["episode/return"]) == ("4096", "22.5")


def test_the_run_has_its_project_name_and_configuration(
    sink: WeightsAndBiases, folder: Path
) -> None:
    sink.close()
    (run,) = [record.run for record in records(folder) if record.HasField("run")]
    assert (run.project, run.display_name) == ("fish", "first")
    assert run.run_id == sink.run_id
    assert {item.key: item.value_json for item in run.config.update}["gamma"] == "0.99"


def test_nothing_is_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stdout = sys.stdout
    sink = WeightsAndBiases("fish", folder=folder)
    sink.write(1, {"a/b": 1.0})
    assert str(sink).startswith(str(folder))
    sink.close()
    assert sys.stdout is stdout
    assert capfd.readouterr() == ("", "")


def test_a_run_of_the_users_own_is_left_alone(folder: Path, tmp_path: Path) -> None:
    with wandb.init(project="other", dir=tmp_path) as own:
        sink = WeightsAndBiases("fish", folder=folder)
        assert sink.run_id != own.id
        sink.close()
        own.log({"still": 1.0})
    assert len(runs(folder)) == 1


def test_it_does_not_travel_to_workers(sink: WeightsAndBiases) -> None:
    with pytest.raises(TypeError, match="stays in the process"):
        pickle.dumps(sink)


def test_a_forked_copy_neither_writes_nor_ends_it(sink: WeightsAndBiases, folder: Path) -> None:
    sink.write(1, {"a/b": 1.0})
    pid = os.fork()
    if pid == 0:
        try:
            sink.write(2, {"a/b": 2.0})
        except OSError:
            sink.close()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    sink.write(3, {"a/b": 3.0})
    sink.close()
    assert [row["_step"] for row in history(folder)] == ["1", "3"]


def test_without_a_login_there_is_advice(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="WANDB_MODE=offline"):
        WeightsAndBiases("fish", folder=folder, mode="online")
