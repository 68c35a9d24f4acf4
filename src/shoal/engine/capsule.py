"""Capsules: files that reproduce an incident (an environment raised, died or hung) in one process.

A capsule is a zip of `capsule.json`, which tells people what happened, and `payload.pkl`, which
makes the environment and brings it there. Unpickling runs code, so nothing is unpickled from a file
that another user of the machine owns or could have written.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import logging
import os
import platform
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from shoal.engine.commands import (
    Call,
    Episode,
    Factory,
    ResetArgs,
    SetAttr,
)
from shoal.engine.machine import is_trusted
from shoal.errors import ConfigError, shown
from shoal.seeding import Seed

if TYPE_CHECKING:
    from zipfile import ZipFile

log = logging.getLogger("shoal")

FORMAT = 1
"""Raise it when `Capsule`, `Episode` or what they are made of change."""
KEPT = 100
LARGEST_BYTES = 32 << 20
"""A factory may hold a whole data set, which is not to be copied at every incident."""
SWITCH = "SHOAL_CAPSULES"
"""The environment variable that names the folder, or (empty) switches capsules off."""

_NAME = re.compile(r"\d{8}-\d{6}-\d{6}-env\d+-[a-z]+\.capsule")
_UNFINISHED = ".unfinished-capsule"
_PLAIN = ("kind", "phase", "cause", "trace", "worker", "env_id", "seed", "num_episodes")
"""The fields that `capsule.json` holds; the payload holds the others."""


@dataclass(frozen=True, slots=True)
class Capsule:
    """All that is known of an incident."""

    kind: str
    """"died", "hung" or "raised"."""
    phase: str
    """What was being done. A step that only resets, because nothing is running, is a "reset"."""
    cause: str
    trace: str
    """The remote traceback, or the last words of the worker; may be empty."""
    worker: int
    env_id: int
    factory: Factory
    attributes: Mapping[str, Any]
    """What `set_attr` had set before the running episode began."""
    seed: Seed
    """The last explicit one."""
    num_episodes: int
    episode: Episode | None
    """Up to the command that failed; None where there is none, or no complete record of it."""
    action: Any = None
    """Of the step that failed, as the environment was given it."""
    reset: ResetArgs | None = None
    """Of the reset that failed; for a step, what an automatic reset within it uses."""
    call: Call | SetAttr | None = None
    """The call that failed, in the phases "call" and "set_attr"."""
    generator: Any = None
    """State of `np_random` before a reset that failed, where there is no episode to lead there."""
    mode: AutoresetMode = AutoresetMode.NEXT_STEP
    check_finite: bool = False


# --- writing -----------------------------------------------------------------------------------


def folder() -> Path | None:
    """Where capsules go, made if need be; None where they are switched off."""
    given = os.environ.get(SWITCH)
    if given == "":
        return None
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(given or f"{state}/shoal/capsules").expanduser().absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def write(capsule: Capsule) -> str | None:
    """Put a capsule into the folder and return its path; None, and a line in the log, if it cannot.

    Never raises: there is an incident to be dealt with already.
    """
    try:
        place = folder()
        return None if place is None else str(_put(place, capsule))
    except Exception as problem:
        _complain(capsule, problem)
        return None


_complaints: set[type] = set()
"""What was said already."""


def _complain(capsule: Capsule, problem: Exception) -> None:
    level = logging.DEBUG if type(problem) in _complaints else logging.WARNING
    _complaints.add(type(problem))
    log.log(
        level,
        "no capsule could be written of env %d, which %s in %s: %s. An empty %s switches capsules "
        "off; otherwise it names their folder.",
        capsule.env_id,
        capsule.kind,
        capsule.phase,
        shown(problem, 400),
        SWITCH,
    )


def _put(place: Path, capsule: Capsule) -> Path:
    now = datetime.datetime.now(datetime.UTC)
    content = _pack(capsule, now)
    path = place / f"{now:%Y%m%d-%H%M%S-%f}-env{capsule.env_id}-{capsule.kind}.capsule"
    fd, unfinished = tempfile.mkstemp(_UNFINISHED, ".", place)  # its mode is 0600
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    _prune(place)
    return path


def _prune(place: Path) -> None:
    """Remove all but the newest (names sort by time), and what a killed process did not finish."""
    names = sorted(os.listdir(place))
    stale = [name for name in names if _NAME.fullmatch(name)][:-KEPT]
    for path in [place / name for name in names if name.endswith(_UNFINISHED)]:
        with contextlib.suppress(OSError):
            stale += [path.name] if time.time() - path.stat().st_mtime > 60 else []
    for name in stale:
        with contextlib.suppress(OSError):  # another process was quicker
            os.unlink(place / name)


def _pack(capsule: Capsule, now: datetime.datetime) -> bytes:
    import zipfile  # here and below: only who writes or reads a capsule needs these

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        header = json.dumps(_describe(capsule, now), indent=1, default=int)
        archive.writestr("capsule.json", header)
        archive.writestr("payload.pkl", _pickle(capsule))
    return file.getvalue()


def _describe(capsule: Capsule, now: datetime.datetime) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "time": now.isoformat(timespec="seconds"),
        **{name: getattr(capsule, name) for name in _PLAIN},
        "length": None if capsule.episode is None else capsule.episode.length,
        "action": shown(capsule.action),
        "reset": shown(capsule.reset),
        "factory": shown(capsule.factory, 1000),
        "versions": versions(),
        "folder": os.getcwd(),
        "path": _own_path(),
    }


def versions() -> dict[str, str]:
    """What is installed here."""
    import cloudpickle
    import gymnasium
    import numpy

    shoal = sys.modules["shoal"]  # which is above this layer, and loaded
    packages = (shoal, gymnasium, numpy, cloudpickle)
    found = {package.__name__: package.__version__ for package in packages}
    return {"python": platform.python_version()} | found


def _own_path() -> list[str]:
    """Where this program looks for modules, beside where every program does."""
    import sysconfig

    everywhere = sysconfig.get_paths()
    known = tuple(everywhere[name] for name in ("stdlib", "purelib", "platlib"))
    entries = [os.path.abspath(entry) for entry in sys.path]
    return [entry for entry in entries if os.path.isdir(entry) and not entry.startswith(known)]


def _pickle(capsule: Capsule) -> bytes:
    import cloudpickle

    file = _Bounded()
    rest = [one.name for one in fields(Capsule) if one.name not in _PLAIN]
    payload = {name: getattr(capsule, name) for name in rest}
    cloudpickle.Pickler(file, protocol=5).dump((_registered(), payload))
    return file.getvalue()


class _Bounded(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > LARGEST_BYTES:
            raise ValueError(f"it would take more than {LARGEST_BYTES >> 20} MiB")
        return super().write(data)


def _registered() -> Any:
    """Environments that this program has registered."""
    from shoal.engine.parcel import Store, unpack
    from shoal.engine.registry import registered

    store = Store()
    try:
        store.memory.resize(1)
        return unpack(registered(store), store.memory.view())
    finally:
        store.memory.close()


# --- reading -----------------------------------------------------------------------------------


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `capsule.json` says, running nothing; ConfigError if it is none that can be trusted."""
    with _opened(path) as archive:
        return _header(archive, path)


def read(path: str | os.PathLike[str]) -> Capsule:
    """The capsule in a file; ConfigError as for `describe`, and where its parts are missing here.

    This process looks for modules where the one that wrote it did (`sys.path` grows at its end),
    and knows the environments that it had registered.
    """
    import pickle
    import zipfile
    import zlib

    from shoal.engine.registry import adopt

    with _opened(path) as archive:
        header = _header(archive, path)
        sys.path += [entry for entry in header.get("path", ()) if _is_wanted(entry)]
        try:
            added, payload = pickle.loads(archive.read("payload.pkl"))
            adopt(added)
            return Capsule(**{name: header[name] for name in _PLAIN}, **payload)
        except (zipfile.BadZipFile, zlib.error) as problem:
            raise _not_a_capsule(path, f"it is damaged ({problem})") from None
        except Exception as problem:
            raise ConfigError(
                f"the environment of {path} cannot be made here: {type(problem).__name__}: "
                f"{problem}. It was written in {header['folder']} with Python "
                f"{header['versions']['python']}; replay it with the packages that it had there."
            ) from problem


def _is_wanted(entry: str) -> bool:
    """Whether to look for modules there too: not where every user of the machine may put some."""
    return entry not in sys.path and is_trusted(entry)


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[ZipFile]:
    import zipfile

    try:
        # Without waiting, should it be a pipe.
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no file {path}. The paths of capsules are in stats()['incidents'], and in "
            "the attribute `capsule` of errors."
        ) from None
    except OSError as problem:
        raise ConfigError(f"{path} cannot be opened: {problem.strerror}.") from None
    try:
        _check_private(os.fstat(fd), path)
        file = os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise
    with file:
        try:
            archive = zipfile.ZipFile(file)
        except zipfile.BadZipFile:
            raise _not_a_capsule(path, "it is no zip file, or only a part of one") from None
        with archive:
            yield archive


def _check_private(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    """Of the open file, so that nobody can exchange it in between."""
    if not stat.S_ISREG(status.st_mode):
        raise _not_a_capsule(path, "it is no regular file")
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to user {status.st_uid}, not to you, and opening a capsule runs code "
            "that is in it. If you trust who made it, replay a copy of your own."
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"{path} can be written by others (its mode is {stat.S_IMODE(status.st_mode):04o}), "
            "and opening a capsule runs code that is in it. If you trust what is in there, "
            "take that right away first: chmod go-w."
        )


def _not_a_capsule(path: str | os.PathLike[str], why: str) -> ConfigError:
    return ConfigError(f"{path} is not a capsule: {why}. Expected one that Shoal has written.")


def _header(archive: ZipFile, path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        header: dict[str, Any] = json.loads(archive.read("capsule.json"))
        found = header["format"]
    except Exception as problem:
        raise _not_a_capsule(path, f"its capsule.json is missing or broken ({problem!r})") from None
    if found != FORMAT:
        raise ConfigError(
            f"{path} has format {found}, and this version of Shoal reads format {FORMAT}. Replay "
            f"it with the version that wrote it, {header.get('versions', {}).get('shoal')}."
        )
    return header
