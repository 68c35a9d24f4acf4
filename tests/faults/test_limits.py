"""F9 and F10: few descriptors, and hardly any /dev/shm, are enough."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import shoal
from faults.conftest import Record, Scale
from faults.program import Program
from shoal.testing import CountingWorld

START_METHODS = ["forkserver", "spawn", "fork"]
NUM_ENVS = 1024

# --- F9: descriptors ------------------------------------------------------------------------

DESCRIPTORS = """
import gc, json, os, resource
import numpy as np
import psutil
import shoal
from shoal.engine.backends import process  # imported before anything is counted
from shoal.testing import CountingWorld

NUM_ENVS = 1024
resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def run(num_workers):
    with shoal.make(
        CountingWorld,
        NUM_ENVS,
        backend="process",
        num_workers=num_workers,
        start_method={start_method!r},
    ) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
        return len(envs.call("tag")), descriptors()
"""


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_thousand_environments_need_few_descriptors(
    start_method: str, tmp_path: Path, figure: Record
) -> None:
    source = DESCRIPTORS.format(limit=256, start_method=start_method)
    with Program(source + "print(json.dumps(run(None)))", tmp_path) as program:
        num_envs, open_descriptors = json.loads(program.output())
    assert num_envs == NUM_ENVS
    figure("F9", f"{start_method}, limit 256", f"{NUM_ENVS} environments, {open_descriptors} open")


MOST_WORKERS = """
before, refused, num_workers = descriptors(), None, {limit} // 2
while True:
    try:
        served, _ = run(num_workers)
        break
    except shoal.ConfigError as error:
        refused = {{
            "error": str(error),
            "children": len(psutil.Process().children(recursive=True)),
            "descriptors": descriptors() - before,
        }}
        num_workers -= 1
print(json.dumps([num_workers, served, refused]))
"""


@pytest.mark.parametrize("start_method", START_METHODS)
def test_workers_are_refused_before_any_starts_or_all_of_them_work(
    start_method: str, tmp_path: Path, scale: Scale, figure: Record
) -> None:
    limit = scale(short=32, full=64 if start_method == "spawn" else 256)
    source = (DESCRIPTORS + MOST_WORKERS).format(limit=limit, start_method=start_method)
    with Program(source, tmp_path) as program:
        num_workers, served, refused = json.loads(program.output(timeout_s=300.0))
    assert served == NUM_ENVS
    assert f"{num_workers + 1} workers need" in refused["error"]
    assert (refused["children"], refused["descriptors"]) == (0, 0)
    figure(
        "F9",
        f"{start_method}, as many workers as are accepted",
        f"{num_workers} with a limit of {limit}, all work; {num_workers + 1} is a `ConfigError`",
    )


# --- F10: /dev/shm --------------------------------------------------------------------------

_MOUNT = "mount -t tmpfs -o size=64m small"
_NAMESPACE = ("unshare", "-Urm", "sh", "-c")
SMALL_SHM = (*_NAMESPACE, f'{_MOUNT} /dev/shm && exec "$@"', "sh")
SMALL_SHM_AND_TMP = (
    *_NAMESPACE,
    f'{_MOUNT} /dev/shm && {_MOUNT} "$TMPDIR" && exec "$@"',
    "sh",
)

ROWS = """
import os
import gymnasium
import numpy as np
import shoal

ROW_BYTES = 4_000_000
NUM_ENVS = {rows_bytes} // ROW_BYTES


class Wide(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (ROW_BYTES,), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        return np.full(ROW_BYTES, 1, np.uint8), {{}}

    def step(self, action):
        self.steps += 1
        return np.full(ROW_BYTES, 1 + self.steps, np.uint8), 0.0, False, False, {{}}


shm = os.statvfs("/dev/shm")
assert shm.f_blocks * shm.f_frsize == 64 << 20
with shoal.make(Wide, NUM_ENVS, backend="process", num_workers=2) as envs:
    envs.reset(seed=0)
    for steps in (1, 2):
        observations, *_ = envs.step(np.zeros(NUM_ENVS, dtype=np.int64))
        assert observations.shape == (NUM_ENVS, ROW_BYTES)
        assert (observations == 1 + steps).all()
        assert os.listdir("/dev/shm") == []
    print(envs.stats()["rows_bytes"])
"""


@pytest.fixture
def _namespaces() -> None:
    """Skips where the kernel does not let users mount anything of their own."""
    tried = subprocess.run([*SMALL_SHM, "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no mount namespace here: {tried.stderr.strip()}")


@pytest.mark.usefixtures("_namespaces")
def test_rows_may_be_larger_than_dev_shm(tmp_path: Path, scale: Scale, figure: Record) -> None:
    rows_bytes = scale(short=80_000_000, full=256_000_000)
    source = ROWS.format(rows_bytes=rows_bytes)
    with Program(source, tmp_path, inside=SMALL_SHM) as program:
        assert int(program.output()) >= rows_bytes
    figure("F10", "in a mount namespace", f"{rows_bytes // 1_000_000} MB of rows, stepped")


@pytest.mark.usefixtures("_namespaces")
def test_rows_that_fit_nowhere_are_an_error_and_not_a_bus_error(
    tmp_path: Path, figure: Record
) -> None:
    # The portable path keeps its rows in a file, and here the disk is as small as /dev/shm.
    source = ROWS.format(rows_bytes=80_000_000)
    with Program(source, tmp_path, inside=SMALL_SHM_AND_TMP, SHOAL_PORTABLE="1") as program:
        assert program.process.wait(60) == 1
        assert program.left_after(2.0) == []
    assert "ConfigError: The rows of all environments need" in program.errors
    figure("F10", "portable path, no room at all", "`ConfigError`")


@pytest.mark.parametrize("start_method", START_METHODS)
def test_what_processes_share_is_not_in_dev_shm(start_method: str, figure: Record) -> None:
    before = shared_mappings(os.getpid())  # other tests may have left something
    with shoal.make(
        CountingWorld, 4, backend="process", num_workers=2, start_method=start_method
    ) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(4, dtype=np.int64))
        pids = [os.getpid(), *(worker.pid for worker in envs._pool.workers)]
        shared = [shared_mappings(pid) for pid in pids]
    assert all("/memfd:shoal (deleted)" in names for names in shared)
    new = set().union(*shared) - before
    assert not [name for name in new if name.startswith("/dev/shm")]
    figure("F10", "mapped from `/dev/shm`, by caller and workers", "nothing")


def shared_mappings(pid: int) -> set[str]:
    """Names of the memory that this process shares with others."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    fields = (line.split(maxsplit=5) for line in lines)
    return {one[5] for one in fields if len(one) == 6 and one[1].endswith("s")}
