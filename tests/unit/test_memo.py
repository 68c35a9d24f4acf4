"""Is what was measured found again, and only where it still holds?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import shoal
from shoal.engine.probe import Probe, Unprobed
from shoal.testing import CountingWorld
from shoal.vector import memo
from shoal.vector.memo import Memo
from shoal.vector.source import resolve

PROBE = Probe(1e-5, 1e-5, 0.1, 1e-5, 1e-3, 16, 1.0, None, 0.0, False, 1, 100)


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SHOAL_CACHE", raising=False)
    monkeypatch.setattr(memo, "_known", {})


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def keep(env: Any, **kwargs: Any) -> None:
    Memo(resolve(env, **kwargs)).keep(PROBE)


def recall(env: Any, **kwargs: Any) -> Probe | Unprobed | None:
    return Memo(resolve(env, **kwargs)).recall()


def test_an_id_is_found_again_by_another_process(tmp_path: Path) -> None:
    assert recall("CartPole-v1") is None
    keep("CartPole-v1")
    memo.forget()
    assert recall("CartPole-v1") == PROBE
    assert len(files(tmp_path)) == 1, "and nothing half-written is left"


def test_other_arguments_are_another_environment() -> None:
    keep("CartPole-v1")
    assert recall("CartPole-v1", env_kwargs={"sutton_barto_reward": True}) is None
    assert recall("Pendulum-v1") is None
    keep("CartPole-v1", env_kwargs={"sutton_barto_reward": True})
    memo.forget()
    assert recall("CartPole-v1", env_kwargs={"sutton_barto_reward": True}) == PROBE


def first() -> CountingWorld:
    return CountingWorld(1)


def second() -> CountingWorld:
    return CountingWorld(2)


@pytest.mark.parametrize(
    "env",
    [
        CountingWorld,
        first,
        lambda: CountingWorld(),
        partial(CountingWorld, tag=3),
        "shoal.testing:CountingWorld",
        [first, second],
    ],
    ids=["class", "function", "lambda", "partial", "module:factory", "list"],
)
def test_what_has_no_version_is_remembered_by_this_process_only(env: Any, tmp_path: Path) -> None:
    keep(env)
    assert recall(env) == PROBE
    memo.forget()
    assert recall(env) is None
    assert files(tmp_path) == []


def test_functions_are_told_apart() -> None:
    keep(first)
    assert recall(second) is None
    keep(lambda: CountingWorld(5))
    assert recall(lambda: CountingWorld(6)) is None


def test_wrappers_make_another_environment_and_have_no_version(tmp_path: Path) -> None:
    keep("CartPole-v1", wrappers=[gymnasium.wrappers.ClipReward])
    assert recall("CartPole-v1") is None
    assert files(tmp_path) == []


@pytest.fixture
def own_id() -> Iterator[str]:
    gymnasium.register("Own-v0", entry_point="shoal.testing:CountingWorld")
    yield "Own-v0"
    del gymnasium.registry["Own-v0"]


def test_a_package_that_is_being_worked_on_is_not_kept_on_disk(
    own_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memo.sysconfig, "get_path", lambda name: str(tmp_path / "elsewhere"))
    keep(own_id)
    assert files(tmp_path) == []


def test_what_could_not_be_measured_is_not_kept_on_disk(tmp_path: Path) -> None:
    Memo(resolve("CartPole-v1")).keep(Unprobed("it hung"))
    assert recall("CartPole-v1") == Unprobed("it hung")
    assert files(tmp_path) == []


def test_another_version_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    keep("CartPole-v1")
    memo.forget()
    monkeypatch.setattr(shoal, "__version__", "99")
    assert recall("CartPole-v1") is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: b"",
        lambda text: text[: len(text) // 2],
        lambda text: b"\xff\x00" * 100,
        lambda text: b"[]",
        lambda text: text.replace(b'"step_s": 1e-05', b'"step_s": NaN'),
        lambda text: text.replace(b'"step_s": 1e-05', b'"step_s": "fast"'),
        lambda text: text.replace(b'"step_s"', b'"stp_s"'),
        lambda text: text.replace(b"CartPole", b"CartPale"),
    ],
    ids=["empty", "half", "binary", "list", "nan", "text", "misspelt", "another key"],
)
def test_a_spoiled_file_is_not_believed_and_replaced(spoil: Any, tmp_path: Path) -> None:
    keep("CartPole-v1")
    (file,) = files(tmp_path)
    spoiled = spoil(file.read_bytes())
    assert spoiled != file.read_bytes()
    file.write_bytes(spoiled)
    memo.forget()
    assert recall("CartPole-v1") is None
    keep("CartPole-v1")
    memo.forget()
    assert recall("CartPole-v1") == PROBE


def test_a_file_says_what_it_is_for(tmp_path: Path) -> None:
    keep("CartPole-v1")
    (file,) = files(tmp_path)
    content = json.loads(file.read_text())
    assert content["key"]["spec"]["id"] == "CartPole-v1"
    assert Probe(**content["probe"]) == PROBE


@pytest.mark.parametrize("word", ["off", "OFF", "0", "no"])
def test_files_can_be_done_without(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("CartPole-v1")
    memo.forget()
    monkeypatch.setenv("SHOAL_CACHE", word)
    assert recall("CartPole-v1") is None
    keep("Pendulum-v1")
    assert len(files(tmp_path)) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    keep("CartPole-v1")
    tmp_path.chmod(0o700)
    assert files(tmp_path) == []


def test_a_file_where_the_folder_should_be_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "shoal").write_text("not a folder")
    keep("CartPole-v1")
    assert recall("CartPole-v1") == PROBE, "from memory"


def test_a_relative_cache_home_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert memo.folder() == tmp_path / "home" / ".cache" / "shoal" / "probes"


def test_an_environment_of_other_numbers_is_still_the_same() -> None:
    """What is kept is the measurement, not the choice: that depends on more."""
    keep("CartPole-v1")
    assert recall("CartPole-v1") == replace(PROBE)
