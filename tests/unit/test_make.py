"""Does `shoal.make` refuse what cannot be before it starts anything, and choose as it says?"""

from __future__ import annotations

import functools
import importlib
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

import shoal
from shoal.errors import ConfigError, ContractError, EnvRaised
from shoal.testing import CountingWorld
from shoal.vector.gym import AsyncVectorEnv
from shoal.vector.make import AUTORESET, as_mode

STARTS = {
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "pty.spawn",
    "socket.__new__",  # how the process that workers come from is asked for one
    "subprocess.Popen",
}
_heard: list[str] | None = None


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _heard is not None and event in STARTS:
        _heard.append(f"{event}{arguments[:1]}")


sys.addaudithook(_listen)  # cannot be taken away again; it is deaf except in these tests


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Processes and threads that were started, even those that have ended since."""
    global _heard
    _heard = heard = []
    start = threading.Thread.start  # Python says so itself only from 3.12 on

    def heard_start(thread: threading.Thread) -> None:
        heard.append(f"thread {thread.name}")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", heard_start)
    yield heard
    _heard = None


class Built(CountingWorld):
    """Counts how often it was made, in this process."""

    made = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        type(self).made += 1
        super().__init__(*args, **kwargs)


def test_the_ear_hears_processes_and_threads(started: list[str]) -> None:
    """Or else the tests below would prove nothing."""
    with shoal.make(CountingWorld, 1, backend="thread"):
        pass
    assert started
    started.clear()
    with shoal.make(CountingWorld, 1, backend="process"):
        pass
    assert started


# --- bad input ---------------------------------------------------------------


def closure_over(handle: Any) -> Callable[[], Any]:
    return lambda: CountingWorld(handle)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"num_envs": 0}, ["num_envs", "at least 1", "got 0"]),
        ({"num_envs": -3}, ["num_envs", "at least 1", "got -3"]),
        ({"num_envs": 2.5}, ["num_envs", "whole number", "2.5"]),
        ({"num_envs": "8"}, ["num_envs", "whole number", "'8'"]),
        ({"num_envs": None}, ["num_envs", "whole number", "None"]),
        ({"backend": "proces"}, ["backend is 'proces'", "Did you mean 'process'?"]),
        ({"backend": "threads"}, ["Did you mean 'thread'?"]),
        ({"backend": "quantum"}, ["'auto', 'serial', 'thread', 'process'"]),
        ({"backend": None}, ["backend is None", "'serial'"]),
        ({"backend": 3}, ["backend is 3", "'serial'"]),
        ({"autoreset": "next-step"}, ["autoreset is 'next-step'", "Did you mean 'next_step'?"]),
        ({"autoreset": "samestep"}, ["Did you mean 'same_step'?"]),
        ({"autoreset": None}, ["autoreset is None", "'disabled'"]),
        ({"start_method": "frok"}, ["start_method is 'frok'", "Did you mean 'fork'?"]),
        ({"on_failure": "rais"}, ["on_failure is 'rais'", "Did you mean 'raise'?"]),
        ({"on_failure": "retry"}, ["Did you mean 'restart'?", "'replay'", "'raise'"]),
        ({"faults": {"on_error": "restart"}}, ["faults is {'on_error'", "shoal.Faults("]),
        ({"step_timeout_s": "1"}, ["step_timeout_s", "number of seconds", "'1'"]),
        ({"num_workers": 0}, ["num_workers", "at least 1", "got 0"]),
        ({"num_workers": 1.5}, ["num_workers", "whole number"]),
        ({"batch_size": 0}, ["batch_size", "at least 1"]),
        ({"batch_size": 9}, ["batch_size is 9", "only 8 environments"]),
        ({"batch_size": 2.0}, ["batch_size", "whole number"]),
        ({"step_timeout_s": 0}, ["step_timeout_s", "above zero", "got 0"]),
        ({"step_timeout_s": -1.0}, ["step_timeout_s", "above zero"]),
        ({"step_timeout_s": float("nan")}, ["step_timeout_s", "above zero", "nan"]),
        ({"step_timeout_s": 1.0, "backend": "serial"}, ["backend='process'", "not 'serial'"]),
        ({"step_timeout_s": 1.0, "backend": "thread"}, ["backend='process'", "not 'thread'"]),
        ({"env": "CartPol-v1"}, ["'CartPol-v1'", "Did you mean 'CartPole-v1'?"]),
        ({"env": "shoal.testing:CountingWold"}, ["Did you mean 'CountingWorld'?"]),
        ({"env": []}, ["empty"]),
        ({"env": 5}, ["5", "Gymnasium id"]),
        ({"env": CountingWorld()}, ["is an environment", "lambda"]),
        ({"env": [CountingWorld] * 3, "num_envs": 4}, ["num_envs is 4", "3 factories"]),
        (
            {"env": closure_over(threading.Lock()), "backend": "process"},
            ["closure variable 'handle'", "_thread.lock", "cannot be pickled"],
        ),
        (
            {"env": CountingWorld, "env_kwargs": {"tag": threading.Lock()}, "backend": "process"},
            ["entry 'tag'", "_thread.lock", "cannot be pickled"],
        ),
    ],
    ids=lambda value: re.sub(r"<.*", "object", str(value)),
)
def test_bad_input_is_refused_before_anything_starts(
    started: list[str], asked: dict[str, Any], said: list[str]
) -> None:
    Built.made = 0
    with pytest.raises(ConfigError) as caught:
        shoal.make(**({"env": Built} | asked))
    for text in said:
        assert text in str(caught.value)
    assert started == []
    assert Built.made == 0


@pytest.mark.parametrize("seed", [-1, "seven", 1.5], ids=repr)
def test_a_bad_seed_is_refused_before_anything_starts(started: list[str], seed: Any) -> None:
    with pytest.raises((ConfigError, ContractError), match="seed"):
        shoal.make(CountingWorld, 2, seed=seed)
    assert started == []


def test_what_is_advised_for_a_factory_that_cannot_be_pickled_works() -> None:
    factory = functools.partial(lambda lock: CountingWorld(), threading.Lock())
    with pytest.raises(ConfigError) as caught:
        shoal.make(factory, 2, backend="process")
    advice = {
        "backend='serial'": {"backend": "serial"},
        "'thread'": {"backend": "thread"},
        "start_method='fork'": {"backend": "process", "start_method": "fork"},
    }
    advised = [asked for words, asked in advice.items() if words in str(caught.value)]
    assert {"backend": "serial"} in advised
    for asked in advised:
        with shoal.make(factory, 2, **asked) as envs:
            envs.reset(seed=0)


def test_a_wrong_fault_policy_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"faults\.on_error is 'rais'\. Did you mean 'raise'\?"):
        shoal.Faults(on_error="rais")


@pytest.mark.parametrize("start_timeout_s", [0, -1.0, float("nan")])
def test_a_start_must_have_some_time(start_timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="start_timeout_s"):
        shoal.Faults(start_timeout_s=start_timeout_s)


def test_a_misspelt_keyword_is_pythons_own_error() -> None:
    with pytest.raises(TypeError, match="num_env"):
        shoal.make(CountingWorld, num_env=3)  # type: ignore[call-arg]


# --- what shows only when environments are built -----------------------------

BACKENDS = ["serial", "thread", "process"]


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Whatever the test started ends with it."""
    me = psutil.Process()
    processes, threads = set(me.children(recursive=True)), set(threading.enumerate())
    yield
    _, alive = psutil.wait_procs(set(me.children(recursive=True)) - processes, timeout=20)
    assert alive == []
    assert set(threading.enumerate()) <= threads


class Sized(CountingWorld):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(width)})


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("backend", BACKENDS)
def test_differing_spaces_are_refused_with_env_and_key(backend: str) -> None:
    factories = [functools.partial(Sized, width) for width in (3, 3, 4)]
    with pytest.raises(ConfigError) as caught:
        shoal.make(factories, backend=backend, num_workers=2)
    for text in ["observation space of env 2", "['b']", "Discrete(3)", "Discrete(4)"]:
        assert text in str(caught.value)


class Hexed(CountingWorld):
    def __init__(self, tag: int) -> None:
        super().__init__(tag)
        if tag == 2:
            self.read_the_map(tag)

    def read_the_map(self, tag: int) -> None:
        raise FileNotFoundError(f"no map for {tag}")


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_in_a_constructor_comes_with_its_own_traceback(backend: str) -> None:
    factories = [functools.partial(Hexed, tag) for tag in range(4)]
    with pytest.raises(EnvRaised, match=r"env 2 raised FileNotFoundError in construct") as caught:
        shoal.make(factories, backend=backend, num_workers=2)
    error = caught.value
    assert (error.env_ids, error.phase) == ((2,), "construct")
    assert isinstance(error.__cause__, FileNotFoundError)
    text = "".join(traceback.format_exception(error))
    assert "in read_the_map" in text
    assert "no map for 2" in text


class Team:
    """As PettingZoo's ParallelEnv."""

    possible_agents = ("a", "b")

    def observation_space(self, agent: str) -> Any: ...


@pytest.mark.usefixtures("leaves_nothing")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_team_is_refused_with_the_name_of_what_takes_it(backend: str) -> None:
    with pytest.raises(ConfigError, match=r"Team.*PettingZoo.*shoal\.make_team"):
        shoal.make(Team, 2, backend=backend)


# --- what it chooses ---------------------------------------------------------


def test_the_result_is_a_vector_environment_of_gymnasium() -> None:
    with shoal.make("CartPole-v1", 3, backend="serial") as envs:
        assert isinstance(envs, gymnasium.vector.VectorEnv)
        assert isinstance(envs, shoal.VectorEnv)
        assert envs.num_envs == 3
        assert envs.spec is gymnasium.spec("CartPole-v1")
        assert envs.observation_space.shape == (3, 4)
        assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_serial_starts_nothing_and_builds_nothing_twice(started: list[str]) -> None:
    Built.made = 0
    with shoal.make(Built, 3, backend="serial") as envs:
        envs.reset(seed=1)
        envs.step([0, 0, 0])
    assert started == []
    assert Built.made == 3


@pytest.mark.parametrize(
    ("num_envs", "num_workers", "expected"), [(3, 2, 2), (3, 3, 3), (2, 9, 2), (1, None, 1)]
)
def test_there_are_never_more_workers_than_environments(
    num_envs: int, num_workers: int | None, expected: int
) -> None:
    with shoal.make(CountingWorld, num_envs, backend="thread", num_workers=num_workers) as envs:
        assert envs.stats()["num_workers"] == expected


def test_workers_are_as_many_as_usable_cores_unless_told() -> None:
    cores = shoal.engine.machine.usable_cores()
    with shoal.make(CountingWorld, cores + 5, backend="thread") as envs:
        assert envs.stats()["num_workers"] == cores


def test_a_list_says_by_itself_how_many_there_are() -> None:
    with shoal.make([CountingWorld] * 3, backend="serial") as envs:
        assert envs.num_envs == 3
    with shoal.make([CountingWorld] * 3, num_envs=3, backend="serial") as envs:
        assert envs.num_envs == 3


def test_whole_numbers_of_numpy_are_numbers() -> None:
    with shoal.make(CountingWorld, np.int64(2), backend="serial", seed=np.int32(5)) as envs:
        assert envs.num_envs == 2
        envs.reset()
        assert envs.get_attr("np_random_seed") == (5, 6)


@pytest.mark.parametrize(
    "name",
    [*AUTORESET, *AutoresetMode, *(mode.value for mode in AutoresetMode)],
    ids=str,
)
def test_a_mode_may_be_named_as_here_as_in_gymnasium_or_given(name: Any) -> None:
    mode = as_mode(name)
    assert isinstance(mode, AutoresetMode)
    assert str(name).replace("AutoresetMode.", "").replace("_", "").lower() == mode.value.lower()


def test_the_seed_of_make_is_that_of_the_first_reset_only() -> None:
    with shoal.make(CountingWorld, 2, backend="serial", seed=40) as envs:
        first, _ = envs.reset()
        assert first[:, 0].tolist() == [40, 41]
        again, _ = envs.reset()
        assert again[:, 3].tolist() == [1, 1], "a further episode of the same seeds"


def test_an_explicit_seed_comes_before_that_of_make() -> None:
    with shoal.make(CountingWorld, 2, backend="serial", seed=40) as envs:
        first, _ = envs.reset(seed=7)
        assert first[:, 0].tolist() == [7, 8]


@pytest.mark.parametrize(
    "limit",
    [{"step_timeout_s": 5.0}, {"faults": shoal.Faults(max_worker_rss_mb=1000.0)}],
    ids=["step_timeout_s", "max_worker_rss_mb"],
)
def test_a_drop_in_refuses_limits_that_threads_cannot_keep(
    limit: dict[str, Any], started: list[str]
) -> None:
    with pytest.raises(ConfigError, match="needs workers"):
        AsyncVectorEnv([CountingWorld], backend="thread", **limit)
    assert not started


def test_a_drop_in_refuses_a_negative_time_limit() -> None:
    with pytest.raises(ConfigError, match="step_timeout_s"):
        AsyncVectorEnv([CountingWorld], step_timeout_s=-5.0)


def test_the_seed_of_make_is_for_first_resets_of_some_as_well() -> None:
    with shoal.make(CountingWorld, 3, backend="serial", seed=40) as envs:
        assert envs.reset_envs([2])[0][:, 0].tolist() == [42]
        mask = np.array([True, False, False])
        assert envs.reset(options={"reset_mask": mask})[0][0, 0] == 40
        assert envs.reset_envs([2, 1])[0][:, 0].tolist() == [42, 41]
        again = envs.reset(options={"reset_mask": mask})[0]
        assert again[0, 3] == 1, "a further episode of the same seed"
        envs.resize(4)
        assert envs.reset_envs([3])[0][0, 0] == 43
        first, _ = envs.reset()
        assert first[:, 0].tolist() == [40, 41, 42, 43], "and that of all is what it always is"
        assert first[:, 3].tolist() == [0, 0, 0, 0]


WRONG: dict[str, tuple[Callable[[shoal.VectorEnv], Any], str]] = {
    "flags as numbers": (lambda e: e.reset_envs([True, False]), "env_ids hold True.*flatnonzero"),
    "a mask as numbers": (lambda e: e.reset_envs(np.ones(2, bool)), "env_ids hold np.True_"),
    "words as numbers": (lambda e: e.reset_envs(["a"]), "env_ids hold 'a'"),
    "options that are a number": (lambda e: e.reset(options=5), "options hold 5; expected a dict"),
    "options that are a word": (lambda e: e.reset(options="ab"), "options hold 'a'; expected"),
    "options that are numbers": (lambda e: e.reset(options=[1, 2]), "options hold 1"),
    "a mask beside numbers": (
        lambda e: e.reset_envs([1], options={"reset_mask": np.ones(2, bool)}),
        "reset_mask, but env_ids say",
    ),
    "a half environment": (lambda e: e.recv(1.5), "recv: min_envs must be a whole number, got 1.5"),
    "a word to receive": (lambda e: e.recv("2"), "recv: min_envs must be a whole number, got '2'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_meant_is_told_in_words(name: str) -> None:
    act, said = WRONG[name]
    with shoal.make(CountingWorld, 2, backend="serial") as envs:
        envs.reset(seed=0)
        envs.send([0, 0])
        if "recv" not in said:
            envs.recv()
        with pytest.raises((ContractError, ConfigError), match=said):
            act(envs)


@pytest.mark.parametrize("name", ["start_timeout_s", "max_worker_rss_mb"])
def test_limits_of_faults_are_numbers(name: str) -> None:
    with pytest.raises(ConfigError, match=f"faults.{name} must be a number above zero, got 'x'"):
        shoal.Faults(**{name: "x"})


def test_workers_come_back_with_their_environments() -> None:
    with shoal.make(CountingWorld, 4, backend="thread", num_workers=3) as envs:
        envs.reset(seed=0)
        envs.resize(1)
        assert envs.stats()["num_workers"] == 1
        envs.resize(6)
        assert envs.stats()["num_workers"] == 3


def test_close_takes_gymnasiums_keyword_and_no_other() -> None:
    with shoal.make(CountingWorld, 2, backend="serial") as envs, pytest.raises(TypeError):
        envs.close(nonsense=1)
    envs = shoal.make(CountingWorld, 2, backend="serial")
    envs.close(timeout=1)
    assert envs.closed


@pytest.mark.parametrize("kind", ["module", "instance"])
@pytest.mark.parametrize("of", ["team", "turns"])
def test_pettingzoos_own_things_are_refused_with_who_takes_them(kind: str, of: str) -> None:
    pytest.importorskip("pettingzoo")
    pytest.importorskip("mpe2")
    name = "mpe2.simple_spread_v3" if of == "team" else "pettingzoo.classic.connect_four_v3"
    module = importlib.import_module(name)
    env = module if kind == "module" else (module.env if of == "turns" else module.parallel_env)()
    with pytest.raises(ConfigError, match=f"shoal.make_{of}"):
        shoal.make(env, 2)


class Watched:
    """A lock whose taker is held up, having taken it, until somebody waits for it."""

    def __init__(self, lock: Any, taker: threading.Thread) -> None:
        self._lock, self._taker = lock, taker
        self.is_taken, self.is_awaited = threading.Event(), threading.Event()
        self._is_owned, self.release = lock._is_owned, lock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if threading.current_thread() is not self._taker:
            if timeout > 0:
                self.is_awaited.set()
            return bool(self._lock.acquire(blocking, timeout))
        taken = bool(self._lock.acquire(blocking, timeout))
        self.is_taken.set()
        self.is_awaited.wait(30)
        return taken


def test_counting_in_another_thread_is_waited_for() -> None:
    with shoal.make(CountingWorld, 1, backend="serial") as envs:
        envs.reset(seed=0)
        thread = threading.Thread(target=envs.stats)
        lock = Watched(envs._pool._busy, thread)
        envs._pool._busy = lock  # type: ignore[assignment]
        thread.start()
        try:
            assert lock.is_taken.wait(30)
            envs.step([0])
        finally:
            lock.is_awaited.set()
            thread.join()


def test_another_thread_is_told_by_the_name_of_the_call() -> None:
    class Waiting(CountingWorld):
        def step(self, action: Any) -> Any:
            entered.set()
            left.wait(30)
            return super().step(action)

    entered, left = threading.Event(), threading.Event()
    with shoal.make(Waiting, 1, backend="serial") as envs:
        envs.reset(seed=0)
        thread = threading.Thread(target=envs.step, args=([0],))
        thread.start()
        try:
            assert entered.wait(30)
            with pytest.raises(ContractError, match=r"^step: another thread is using"):
                envs.step([0])
        finally:
            left.set()
            thread.join()
