"""One fixture runs a test on every backend; serial is the oracle."""

from __future__ import annotations

import importlib.util
import signal
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

import shoal

collect_ignore_glob = [] if importlib.util.find_spec("agilerl") else ["against_agilerl/*"]
"""What needs AgileRL, in an environment of its own: `make agilerl-tests`."""


class Setting(NamedTuple):
    """Where the environments of a test run."""

    backend: str
    num_workers: int
    portable: bool = False

    def __str__(self) -> str:
        return f"{self.backend}{self.num_workers}{'-portable' if self.portable else ''}"


SETTINGS = [
    Setting("serial", 1),
    *(Setting("thread", workers) for workers in (1, 2, 3)),
    *(Setting("process", workers) for workers in (1, 2, 3)),
    Setting("process", 2, portable=True),
    Setting("hybrid", 2),
    Setting("hybrid", 3),
]
ISOLATED = [setting for setting in SETTINGS if setting.backend == "process"]

Make = Callable[..., shoal.VectorEnv]
MakeVecEnv = Callable[[Sequence[Any]], Any]

VEC_ENVS = [("dummy", 1), ("process", 1), ("process", 3), ("thread", 2), ("hybrid", 2)]
"""The drop-ins for Stable-Baselines3, and where their environments run."""

PORTABLE_KEPT = 5
"""One in so many tests of the portable path is run by `make test`, the others by `make test-slow`:
each starts interpreters, and all of them take as long as the rest together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    portable = [item for item in items if "portable" in item.name]
    for item in portable:
        if zlib.crc32(item.nodeid.encode()) % PORTABLE_KEPT:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def _heed_the_keyboard() -> None:
    """A test run in the background ignores Ctrl-C and Ctrl-\\, and so would all that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def _warm() -> Iterator[None]:
    """Keep what worker processes are forked from, so that not every test starts it anew."""
    from shoal.engine.zygote import Zygote

    class Holder:
        pass

    holder = Holder()
    Zygote.lease(holder)
    yield
    Zygote.release(holder)


@pytest.fixture(scope="session", autouse=True)
def _capsules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Capsules of all that fails on purpose go with the other files of a test run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHOAL_CAPSULES", str(tmp_path_factory.mktemp("capsules")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """So does what `backend="auto"` has measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(params=SETTINGS, ids=str)
def setting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Every backend, with 1, 2 and 3 workers, and what other systems than Linux get."""
    chosen: Setting = request.param
    if chosen.portable:
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
    return chosen


@pytest.fixture
def make(setting: Setting) -> Iterator[Make]:
    """`shoal.make` on the backend of this test; closes whatever it made."""
    made: list[shoal.VectorEnv] = []

    def make_on_setting(env: Any, *num_envs: int, **kwargs: Any) -> shoal.VectorEnv:
        kwargs = {"backend": setting.backend, "num_workers": setting.num_workers} | kwargs
        made.append(shoal.make(env, *num_envs, **kwargs))
        return made[-1]

    yield make_on_setting
    for envs in made:
        envs.close()


@pytest.fixture
def made(setting: Setting) -> Iterator[Callable[..., Any]]:
    """`shoal.make_team` or `shoal.make_turns` on the backend of this test."""
    opened: list[Any] = []

    def make_on_setting(kind: str, env: Any, *num_envs: int, **kwargs: Any) -> Any:
        kwargs = {"backend": setting.backend, "num_workers": setting.num_workers} | kwargs
        opened.append(getattr(shoal, f"make_{kind}")(env, *num_envs, **kwargs))
        return opened[-1]

    yield make_on_setting
    for envs in opened:
        envs.close()


@pytest.fixture(params=VEC_ENVS, ids=lambda place: f"{place[0]}{place[1]}")
def make_vec(request: pytest.FixtureRequest) -> Iterator[MakeVecEnv]:
    """Makes vector environments of these functions, and closes them after the test."""
    from shoal.vector.sb3 import DummyVecEnv, SubprocVecEnv

    made: list[Any] = []
    backend, num_workers = request.param

    def make(env_fns: Sequence[Any]) -> Any:
        if backend == "dummy":
            made.append(DummyVecEnv(env_fns))
        else:
            made.append(SubprocVecEnv(env_fns, backend=backend, num_workers=num_workers))
        return made[-1]

    yield make
    for envs in made:
        envs.close()


@pytest.fixture(params=["next_step", "same_step", "disabled"])
def mode(request: pytest.FixtureRequest) -> str:
    """Each autoreset mode."""
    return str(request.param)
