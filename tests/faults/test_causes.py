"""F2: however an environment ends its worker, the error names the cause, the phase and the envs.

What dies when, on which path, stands in `test_deaths.py`; here are the start methods, limits of
memory, and the rarer moments.
"""

from __future__ import annotations

import ctypes
import functools
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from faults.conftest import Record
from shoal import EnvRaised, WorkerDied
from shoal.testing import CountingWorld
from shoal.testing.saboteurs import EXIT_CODE, Saboteur

NUM_ENVS, CULPRIT, LOST = 6, 4, (3, 4, 5)
START_METHODS = ["forkserver", "spawn", "fork"]
DEATHS = {
    "sigkill": "was killed by SIGKILL",
    "sigsegv": "was killed by SIGSEGV",
    "abort": "was killed by SIGABRT",
    "os_exit": f"exited with code {EXIT_CODE}",
}
FIGURE = ("F2", "signal or exit code, phase and environments", "named")


def make(culprit: Any, start_method: str = "forkserver") -> shoal.VectorEnv:
    """Two workers with three worlds each; one world of the second is the culprit."""
    worlds = [functools.partial(CountingWorld, tag) for tag in range(NUM_ENVS)]
    worlds[CULPRIT] = culprit
    return shoal.make(
        worlds, backend="process", num_workers=2, start_method=start_method, on_failure="raise"
    )


def zeros() -> np.ndarray:
    return np.zeros(NUM_ENVS, dtype=np.int64)


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("start_method", START_METHODS)
def test_every_start_method_tells_a_death_alike(
    start_method: str, how: Any, figure: Record
) -> None:
    with make(functools.partial(Saboteur, how, "step", tag=CULPRIT), start_method) as envs:
        envs.reset(seed=0)
        pid = envs._pool.workers[1].pid
        with pytest.raises(WorkerDied) as caught:
            envs.step(zeros())
    error = caught.value
    text = f"worker 1 (pid {pid}) {DEATHS[how]} in step of env 4. Lost with it: envs 3 to 5."
    assert str(error).startswith(text)
    assert (error.worker, error.pid, error.phase, error.env_ids) == (1, pid, "step", LOST)
    assert ("out of memory" in str(error)) == (how == "sigkill")
    figure(*FIGURE)


class Wild(CountingWorld):
    def step(self, action: Any) -> Any:
        ctypes.string_at(0)


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_wild_pointer_is_shown_with_the_line_that_used_it(
    start_method: str, figure: Record
) -> None:
    with make(Wild, start_method) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDied, match="was killed by SIGSEGV in step of env 4") as caught:
            envs.step(zeros())
    line = Wild.step.__code__.co_firstlineno + 1
    assert f'{Path(__file__).name}", line {line} in step' in str(caught.value)
    figure(*FIGURE)


@pytest.mark.parametrize("when", ["reset", "step", "call"])
def test_sys_exit_is_an_exception_with_its_code_and_ends_nobody(when: Any, figure: Record) -> None:
    with make(functools.partial(Saboteur, "sys_exit", when, tag=CULPRIT)) as envs:
        with pytest.raises(EnvRaised, match=rf"env 4 raised SystemExit in {when} \(.*\): 3"):
            envs.reset(seed=0)
            envs.call("poke", env_ids=[CULPRIT])
            envs.step(zeros())
        assert envs.get_attr("tag") == tuple(range(NUM_ENVS))
    figure("F2", "`sys.exit`", "named with its code, the worker lives on")


class Greedy(CountingWorld):
    """Wants more memory than it may have, at one moment."""

    def __init__(self, when: str) -> None:
        self.when = when
        self.want("construct")
        super().__init__(CULPRIT)

    def reset(self, **kwargs: Any) -> Any:
        self.want("reset")
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.want("step")
        return super().step(action)

    def want(self, when: str) -> None:
        if when == self.when:
            limit_memory(64 << 20)
            np.ones(1 << 30, np.uint8)


class Hoarder(CountingWorld):
    """Takes all the memory it may have and keeps it, to the last few bytes."""

    def step(self, action: Any) -> Any:
        limit_memory(64 << 20)
        self.hoard: list[bytearray] = []
        size = 1 << 20
        while True:
            try:
                self.hoard.append(bytearray(size))
            except MemoryError:
                size //= 2
                if size < 64:
                    raise


def limit_memory(more_bytes: int) -> None:
    """Let this process have so much more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@pytest.mark.parametrize("when", ["construct", "reset", "step"])
@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_memory_limit_is_named_with_what_was_wanted(
    start_method: str, when: str, figure: Record
) -> None:
    text = rf"env 4 raised MemoryError in {when} \(.*\): Unable to allocate 1.00 GiB"
    with pytest.raises(EnvRaised, match=text) as caught:
        with make(functools.partial(Greedy, when), start_method) as envs:
            envs.reset(seed=0)
            envs.step(zeros())
    assert (caught.value.phase, caught.value.env_ids) == (when, (CULPRIT,))
    figure("F2", "memory limit", "`MemoryError` of the environment, or the worker's exit code")


@pytest.mark.parametrize("start_method", START_METHODS)
def test_where_no_memory_is_left_to_tell_it_the_worker_says_so_and_ends(
    start_method: str, capfd: pytest.CaptureFixture[str], figure: Record
) -> None:
    with make(Hoarder, start_method) as envs:
        envs.reset(seed=0)
        with pytest.raises((EnvRaised, WorkerDied)) as caught:
            envs.step(zeros())
    error = caught.value
    if isinstance(error, WorkerDied):
        assert "exited with code 1" in str(error)
        assert "MemoryError" in str(error) + capfd.readouterr().err
    else:
        assert "env 4 raised MemoryError in step" in str(error)
    assert CULPRIT in error.env_ids
    figure("F2", "memory limit", "`MemoryError` of the environment, or the worker's exit code")


class DeadlyInfo:
    def __reduce__(self) -> Any:
        os._exit(3)


class Last(CountingWorld):
    def step(self, action: Any) -> Any:
        return (*super().step(action)[:4], {"deadly": DeadlyInfo()})


def test_a_death_in_the_answer_is_one_in_its_phase(figure: Record) -> None:
    with make(Last) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDied, match="exited with code 3") as caught:
            envs.step(zeros())
    assert caught.value.phase == "step"
    figure(*FIGURE)


@pytest.mark.parametrize("how", DEATHS)
def test_a_death_in_render_is_named(how: Any, figure: Record) -> None:
    with make(functools.partial(Saboteur, how, "render", tag=CULPRIT)) as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDied, match=rf"{DEATHS[how]} in call of env 4") as caught:
            envs.render()
    assert caught.value.env_ids == LOST
    figure(*FIGURE)


@pytest.mark.parametrize("how", DEATHS)
def test_a_death_in_close_keeps_nobody_from_closing(how: Any, tmp_path: Path) -> None:
    class Closing(CountingWorld):
        def close(self) -> None:
            (tmp_path / str(self.tag)).touch()

    worlds = [functools.partial(Closing, tag) for tag in range(NUM_ENVS)]
    worlds[CULPRIT] = functools.partial(Saboteur, how, "close", tag=CULPRIT)
    envs = shoal.make(worlds, backend="process", num_workers=2, on_failure="raise")
    envs.reset(seed=0)
    envs.close()
    assert {path.name for path in tmp_path.iterdir()} >= {"0", "1", "2"}


def test_deaths_at_the_same_time_are_all_told(figure: Record) -> None:
    worlds = [functools.partial(Saboteur, "abort", "step", tag=tag) for tag in range(4)]
    with shoal.make(worlds, backend="process", num_workers=2, on_failure="raise") as envs:
        envs.reset(seed=0)
        with pytest.raises(WorkerDied, match="in step of env 0") as caught:
            envs.step(np.zeros(4, dtype=np.int64))
    (other,) = caught.value.others
    assert isinstance(other, WorkerDied)
    assert (other.worker, other.env_ids) == (1, (2, 3))
    figure(*FIGURE)
