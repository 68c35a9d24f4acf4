"""What was measured on: figures of different machines, or of a busy one, are not compared."""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from shoal.engine.machine import usable_cores

_PACKAGES = (
    "shoal-rl",
    "numpy",
    "gymnasium",
    "torch",
    "mujoco",
    "stable-baselines3",
    "sb3-contrib",
    "pufferlib-core",
    "pufferlib",
    "tianshou",
    "torchrl",
    "envpool",
    "pettingzoo",
    "mpe2",
    "supersuit",
    "agilerl",
    "pyboy",
)
"""What is stepped, and by whom; those that are installed are told."""
_PROCESSOR = ("vendor_id", "cpu family", "model", "stepping")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine, as far as it matters for speed."""

    cpu: str
    cores: int
    """That may be used: affinity and quota of the control group."""
    cores_of_machine: int
    memory_gb: float | None
    system: str
    python: str
    packages: dict[str, str]
    load: float | None
    """Processes that wanted to run, over the last minute, when the run began."""
    commit: str = ""
    """Of the checkout that Shoal is in, "-dirty" with changes; else what SHOAL_COMMIT says."""
    processor: str = ""
    """Maker, family, model and stepping, of which the name alone may tell little."""
    blas: str = ""
    """What multiplies matrices for NumPy, and for which processor it has chosen its kernels."""

    @property
    def name(self) -> str:
        """Short, fit for a file."""
        words = [word for word in self.cpu.replace("(R)", "").split() if word.isalnum()]
        return "-".join([*words[:3], f"{self.cores}cores"]).lower()


def fingerprint() -> Machine:
    """This machine, now."""
    cpuinfo = _cpuinfo()
    return Machine(
        cpu=cpuinfo.get("model name") or platform.processor() or platform.machine() or "unknown",
        cores=usable_cores(),
        cores_of_machine=os.cpu_count() or 1,
        memory_gb=_memory_gb(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages={name: version for name in _PACKAGES if (version := _version(name))},
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        commit=checked_out(Path(__file__)) or os.environ.get("SHOAL_COMMIT", ""),
        processor=", ".join(f"{name} {cpuinfo[name]}" for name in _PROCESSOR if name in cpuinfo),
        blas=_blas(),
    )


def checked_out(file: Path) -> str:
    """The commit of the repository that has this file; a folder that only lies in one has none."""
    try:
        _git(file.parent, "ls-files", "--error-unmatch", file.name)
        return _git(file.parent, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=10")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *words: str) -> str:
    command = ["git", "--no-optional-locks", *words]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.strip()


def _cpuinfo() -> dict[str, str]:
    """What Linux says of the first processor; elsewhere nothing."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return {}
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


def _blas() -> str:
    """By threadpoolctl, which asks the library itself; else as NumPy was built."""
    if importlib.util.find_spec("threadpoolctl") is None:
        built: Any = np.show_config(mode="dicts")
        of = built.get("Build Dependencies", {}).get("blas", {})
        return " ".join(of[name] for name in ("name", "version") if of.get(name))
    loaded = importlib.import_module("threadpoolctl").threadpool_info()
    names = ("internal_api", "version", "architecture")
    each = (one for one in loaded if one["user_api"] == "blas")
    return ", ".join(" ".join(one[name] for name in names if one.get(name)) for one in each)


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
