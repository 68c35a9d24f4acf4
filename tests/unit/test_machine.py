"""Are the cores counted that this process may really use?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.engine import machine
from shoal.engine.machine import is_portable, usable_cores


@pytest.fixture
def affinity() -> Iterator[set[int]]:
    """The cores of this process, which a test may change."""
    cores = os.sched_getaffinity(0)
    yield cores
    os.sched_setaffinity(0, cores)


def groups(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "0\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000\n"}, None),
        ({"cpu.max": "\n"}, None),
        ({"cpu.max": "nonsense here\n"}, None),
        ({}, None),
    ],
    ids=[
        "v2",
        "v2 less than one",
        "v2 unlimited",
        "v1",
        "v1 unlimited",
        "v1 zero period",
        "v1 half",
        "empty",
        "nonsense",
        "none",
    ],
)
def test_the_quota_of_a_control_group_is_read(
    tmp_path: Path, files: dict[str, str], cores: float | None
) -> None:
    assert machine.cpu_quota(groups(tmp_path, files)) == cores


def test_version_two_is_preferred(tmp_path: Path) -> None:
    files = {
        "cpu.max": "200000 100000",
        "cpu/cpu.cfs_quota_us": "700000",
        "cpu/cpu.cfs_period_us": "100000",
    }
    assert machine.cpu_quota(groups(tmp_path, files)) == 2.0


def test_memory_in_all_is_that_of_the_machine_or_less_by_a_limit(tmp_path: Path) -> None:
    whole_mb = machine.total_memory_mb(tmp_path)
    assert whole_mb is not None
    assert whole_mb >= (machine.free_memory_mb(tmp_path) or 0.0)
    for limit, total_mb in ((str(256 << 20), 256.0), ("max", whole_mb)):
        assert machine.total_memory_mb(groups(tmp_path, {"memory.max": limit})) == total_mb


def test_files_that_may_be_open_have_two_limits() -> None:
    import resource

    assert machine.descriptor_limits() == resource.getrlimit(resource.RLIMIT_NOFILE)


def test_cores_are_those_of_the_affinity(affinity: set[int]) -> None:
    assert 1 <= usable_cores() <= len(affinity)
    os.sched_setaffinity(0, {min(affinity)})
    assert usable_cores() == 1


@pytest.mark.parametrize(
    ("quota", "most"), [(None, 10**6), (0.5, 1), (1.0, 1), (1.5, 2), (10.0**6, 10**6)]
)
def test_a_quota_limits_the_cores_and_a_part_of_one_counts_as_one(
    affinity: set[int], monkeypatch: pytest.MonkeyPatch, quota: float | None, most: int
) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    assert usable_cores() == min(len(affinity), most)


@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("yes", True), ("0", False), ("", False), (None, False)]
)
def test_the_portable_path_is_switched_on_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    if value is None:
        monkeypatch.delenv("SHOAL_PORTABLE", raising=False)
    else:
        monkeypatch.setenv("SHOAL_PORTABLE", value)
    assert is_portable() is expected


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_elsewhere_than_on_linux_the_portable_path_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("SHOAL_PORTABLE", "0")
    assert is_portable()
