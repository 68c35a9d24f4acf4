"""Where workers come from: every start method, every kind of caller, nothing of it asked."""

from __future__ import annotations

import dataclasses
import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest

import shoal
from shoal.testing import CountingWorld
from trace_of import assert_same, run

START_METHODS = ["forkserver", "spawn", "fork"]
SRC = str(Path(shoal.__file__).parents[1])

PROGRAM = """
import gymnasium, numpy, shoal

offset = 3.0

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-100, 100, (1,), numpy.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return numpy.array([offset]), {}

    def step(self, action):
        return numpy.array([offset + action]), 1.0, False, False, {}

envs = shoal.make(lambda: Mine(), num_envs=4, backend="process", num_workers=2)
envs.reset(seed=0)
observations, *_ = envs.step(numpy.array([0, 1, 0, 1]))
print(observations.ravel().tolist())
"""
SAYS = "[3.0, 4.0, 3.0, 4.0]"


def start(*command: str, cwd: Path, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": SRC}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=env,
        text=True,
        capture_output=True,
        timeout=60,
        **kwargs,
    )


@pytest.mark.parametrize("start_method", START_METHODS)
def test_every_start_method_gives_the_same_trajectories(start_method: str) -> None:
    worlds = [functools.partial(CountingWorld, tag, infos="numeric") for tag in range(5)]
    with shoal.make(worlds, backend="serial") as envs:
        expected = run(envs, 300)
    with shoal.make(worlds, backend="process", num_workers=2, start_method=start_method) as envs:
        assert_same(run(envs, 300), expected)


def test_a_script_without_a_guard_works(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM + "envs.close()\n")
    done = start("script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, SAYS, "")


def test_a_script_that_never_closes_ends_cleanly(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(PROGRAM)
    done = start("script.py", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, SAYS, "")


def test_a_command_line_program_works(tmp_path: Path) -> None:
    done = start("-c", PROGRAM, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, SAYS, "")


def test_a_module_run_with_m_works(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "program.py").write_text(PROGRAM)
    done = start("-m", "package.program", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, SAYS, "")


def test_an_interactive_session_works(tmp_path: Path) -> None:
    # Fed line by line to the interactive interpreter, as a person types it.
    lines = PROGRAM.replace("\n\n    def", "\n    def")
    done = start("-i", "-q", cwd=tmp_path, input=lines)
    assert SAYS in done.stdout
    assert "Traceback" not in done.stderr


def test_a_notebook_cell_works(tmp_path: Path) -> None:
    # What a kernel does: code executed in a __main__ that has no file.
    cell = f"compile({PROGRAM!r}, '<cell 1>', 'exec')"
    code = f"import sys; exec({cell}, vars(sys.modules['__main__']))"
    done = start("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, SAYS, "")


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_caller_with_threads_works(start_method: str) -> None:
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        with shoal.make(
            lambda: CountingWorld(1), 4, backend="process", start_method=start_method
        ) as envs:
            envs.reset(seed=0)
            assert envs.get_attr("tag") == (1, 1, 1, 1)
    finally:
        end.set()
        for thread in threads:
            thread.join()


def test_a_pool_outlives_the_thread_that_made_it() -> None:
    made: list[shoal.VectorEnv] = []
    maker = threading.Thread(
        target=lambda: made.append(shoal.make(CountingWorld, 2, backend="process", num_workers=2))
    )
    maker.start()
    maker.join()
    with made[0] as envs:
        envs.reset(seed=0)
        for _ in range(3):
            envs.step(np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize("start_method", START_METHODS)
def test_environments_registered_by_the_caller_are_known(start_method: str) -> None:
    gymnasium.register("Counting-v0", entry_point=lambda **kwargs: CountingWorld(5, **kwargs))
    try:
        for env in ("Counting-v0", lambda: gymnasium.make("Counting-v0")):
            with shoal.make(env, 2, backend="process", start_method=start_method) as envs:
                assert envs.get_attr("tag") == (5, 5)
    finally:
        del gymnasium.registry["Counting-v0"]


def test_a_factory_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_worlds.py").write_text(
        "from shoal.testing import CountingWorld\n"
        "class Inside:\n"
        "    @staticmethod\n"
        "    def make(tag=1):\n"
        "        return CountingWorld(tag)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with shoal.make("my_worlds:Inside.make", 2, backend="process", env_kwargs={"tag": 4}) as envs:
        assert envs.get_attr("tag") == (4, 4)


class Curious(CountingWorld):
    """Tells about the process it lives in."""

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def pid(self) -> int:
        return os.getpid()

    def say(self, text: str) -> None:
        print(text, flush=True)
        os.write(2, f"{text} (err)\n".encode())

    def warn(self, text: str) -> None:
        import logging

        logging.getLogger("my.world").warning("it is %s", text)

    def start_child(self) -> int:
        return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE).pid


@pytest.mark.parametrize("start_method", START_METHODS)
def test_workers_have_one_thread_per_library_and_the_caller_is_left_alone(
    start_method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "13")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.setenv("OF_THE_CALLER", "yes")
    with shoal.make(Curious, 2, backend="process", start_method=start_method) as envs:
        assert envs.call("variable", "OMP_NUM_THREADS") == ("1", "1")
        assert envs.call("variable", "MKL_NUM_THREADS") == ("1", "1")
        assert envs.call("variable", "OF_THE_CALLER") == ("yes", "yes")
    assert os.environ["OMP_NUM_THREADS"] == "13"
    assert "MKL_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("start_method", START_METHODS)
def test_what_workers_print_comes_with_their_number(
    start_method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with shoal.make(
        Curious, 2, backend="process", num_workers=2, start_method=start_method
    ) as envs:
        envs.call("say", "hello")
    out, err = capfd.readouterr()
    assert sorted(out.split("\n")) == ["", "[worker 0] hello", "[worker 1] hello"]
    if start_method != "fork":  # there, only Python's own streams carry the number
        assert sorted(err.split("\n")) == ["", "[worker 0] hello (err)", "[worker 1] hello (err)"]


def test_logging_of_workers_goes_through_the_callers(caplog: pytest.LogCaptureFixture) -> None:
    with shoal.make(Curious, 2, backend="process", num_workers=2) as envs:
        envs.call("warn", "late", env_ids=[1])
    records = [record for record in caplog.records if record.name == "my.world"]
    assert [record.getMessage() for record in records] == ["[worker 1] it is late"]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_workers_may_have_children_which_go_with_them(start_method: str) -> None:
    with shoal.make(
        Curious, 2, backend="process", num_workers=2, start_method=start_method
    ) as envs:
        pids = envs.call("start_child")
        assert all(psutil.pid_exists(pid) for pid in pids)
        children = [psutil.Process(pid) for pid in pids]
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not alive


class Holder(CountingWorld):
    """Keeps large data that it was given."""

    def __init__(self, data: Any, rom: bytes) -> None:
        super().__init__()
        self.data, self.rom = data, rom

    def look(self) -> tuple[float, bool, int, int]:
        return float(self.data.sum()), self.data.flags.writeable, id(self.rom), len(self.rom)

    def mapping(self) -> tuple[str, str]:
        """The inode, and the place in it, of the mapping that the data lies in."""
        address = self.data.ctypes.data
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, _, _, _, inode, *_ = line.split()
            first, last = (int(end, 16) for end in span.split("-"))
            if first <= address < last:
                return inode, hex(address - first)
        raise AssertionError("the data is nowhere")


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_large_data_is_shared_once_by_all_workers(start_method: str) -> None:
    data, rom = np.ones(32 << 20, dtype=np.uint8), b"x" * (2 << 20)
    with shoal.make(
        Holder,
        8,
        backend="process",
        num_workers=2,
        env_kwargs={"data": data, "rom": rom},
        start_method=start_method,
    ) as envs:
        looks = envs.call("look")
        assert {look[:2] for look in looks} == {(float(32 << 20), False)}
        assert {look[3] for look in looks} == {2 << 20}
        assert len({look[2] for look in looks[:4]}) == 1, "one copy of the bytes per worker"
        (mapping,) = set(envs.call("mapping"))
        assert mapping[0] != "0", "one file in memory, mapped by all workers, copied by none"


def test_many_environments_start_in_the_time_of_a_few() -> None:
    with shoal.make("CartPole-v1", 1024, backend="process", num_workers=2) as envs:
        observations, _ = envs.reset(seed=0)
        assert observations.shape == (1024, 4)
        assert len(set(envs.np_random_seed)) == 1024


def test_what_is_registered_anew_on_gymnasiums_own_classes_is_known_in_workers() -> None:
    """By factories, too, which look for it where they are called."""
    point = "gymnasium.envs.classic_control.cartpole:CartPoleEnv"
    before = dict(gymnasium.registry)
    try:
        gymnasium.register("ShortCart-v0", entry_point=point, max_episode_steps=3)
        gymnasium.registry["CartPole-v1"] = dataclasses.replace(
            gymnasium.spec("CartPole-v1"), max_episode_steps=2
        )
        for env_id, length in (("ShortCart-v0", 3), ("CartPole-v1", 2)):
            make = functools.partial(gymnasium.make, env_id)
            with shoal.make(make, 1, backend="process") as envs:
                envs.reset(seed=0)
                ends = [bool(envs.step([k % 2])[3][0]) for k in range(length)]
                assert ends == [False] * (length - 1) + [True]
    finally:
        gymnasium.registry.clear()
        gymnasium.registry.update(before)
