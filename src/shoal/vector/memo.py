"""What was measured before: in this process for any factory, on disk for what has a version.

On disk is only what can be keyed reliably: a registered id of an installed package. The key holds
the whole registration, the arguments, the versions of the package, of Gymnasium, of Python and of
Shoal, and the processor. `SHOAL_CACHE=off` does without the files.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec

from shoal.engine.probe import Probe, Unprobed, is_plausible
from shoal.vector.source import Resolved

FORMAT = 2
"""Of the files; another one is not read."""

_known: dict[str, Probe | Unprobed] = {}
"""By fingerprint, in this process."""


class Memo:
    """Where the measurement of one kind of environment is kept."""

    def __init__(self, source: Resolved) -> None:
        self._fingerprint = _fingerprint(source.factories[0])
        _, kwargs, wrappers = source.factories[0].args
        self._key = None
        if source.spec is not None and not wrappers:
            self._key = _file_key(source.spec, kwargs)

    def recall(self) -> Probe | Unprobed | None:
        """What was measured before, or why it could not be; None if nobody tried."""
        if self._fingerprint is not None and self._fingerprint in _known:
            return _known[self._fingerprint]
        found = None if self._key is None else _read(self._key)
        if found is not None and self._fingerprint is not None:
            _known[self._fingerprint] = found
        return found

    def keep(self, found: Probe | Unprobed) -> None:
        """Write it down for the next time; what could not be measured, for this process only."""
        if self._fingerprint is not None:
            _known[self._fingerprint] = found
        if self._key is not None and isinstance(found, Probe):
            _write(self._key, found)


def forget() -> None:
    """Forget what was measured in this process."""
    _known.clear()


def _fingerprint(factory: Any) -> str | None:
    """The same for the same registration, module and name, or code; None where it has none."""
    try:
        return hashlib.sha256(cloudpickle.dumps(factory)).hexdigest()
    except Exception:
        return None


# --- on disk -----------------------------------------------------------------------------------


def folder() -> Path | None:
    """Where files are kept; None for nowhere."""
    if os.environ.get("SHOAL_CACHE", "").lower() in ("off", "0", "no"):
        return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # as its specification says
        base = os.path.expanduser("~/.cache")
    return Path(base) / "shoal" / "probes" if os.path.isabs(base) else None


def _file_key(spec: EnvSpec, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """All that a measurement depends on; None where that cannot be told."""
    if folder() is None:
        return None
    try:
        module = str(spec.entry_point).partition(":")[0].partition(".")[0]
        key = {
            "format": FORMAT,
            "spec": json.loads(spec.to_json()),
            "kwargs": json.loads(json.dumps(dict(kwargs), sort_keys=True)),
            "package": _installed_version(module),
            "gymnasium": gymnasium.__version__,
            "shoal": _shoal_version(),
            "python": sys.version,
            "processor": _processor(),
        }
    except Exception:
        return None
    return key if key["package"] is not None else None


def _installed_version(module: str) -> str | None:
    """The version of the package that a module belongs to.

    None where it is not simply installed: what is being worked on changes without a new version.
    """
    found = importlib.util.find_spec(module)
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    if found is None or found.origin is None:
        return None
    if not any(found.origin.startswith(f"{place}{os.sep}") for place in places):
        return None
    if module == "gymnasium":
        return f"{module} {gymnasium.__version__}"
    from importlib.metadata import PackageNotFoundError, version  # which takes 10 ms

    try:
        return f"{module} {version(module)}"
    except PackageNotFoundError:
        return None


def _shoal_version() -> str:
    import shoal

    return shoal.__version__


@cache
def _processor() -> str:
    name = sys.platform
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        name = next((line for line in file if line.startswith("model name")), name)
    return f"{sysconfig.get_platform()} {name.partition(':')[2].strip() or name} × {os.cpu_count()}"


def _path(key: Mapping[str, Any]) -> Path | None:
    where = folder()
    if where is None:
        return None
    text = json.dumps(key, sort_keys=True)
    return where / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _read(key: Mapping[str, Any]) -> Probe | None:
    """A measurement from its file; None where there is none, or none that can be trusted."""
    path = _path(key)
    try:
        content = json.loads(path.read_bytes()) if path is not None else {}
        if content["key"] != key:
            return None
        probe = Probe(**content["probe"])
        return probe if is_plausible(probe) else None
    except Exception:  # whatever the file holds: it is measured again
        return None


def _write(key: Mapping[str, Any], probe: Probe) -> None:
    """A whole file or none; what cannot be written is measured again."""
    path = _path(key)
    if path is None:
        return
    import tempfile

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = json.dumps({"key": key, "probe": asdict(probe)}, indent=1)
        fd, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        try:
            with os.fdopen(fd, "w") as file:
                file.write(content)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
