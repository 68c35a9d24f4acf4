"""What was measured on: figures of different machines, or of a busy one, are not compared."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata

from shoal.engine.machine import usable_cores

_PACKAGES = ("shoal-rl", "numpy", "gymnasium")


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

    @property
    def name(self) -> str:
        """Short, fit for a file."""
        words = [word for word in self.cpu.replace("(R)", "").split() if word.isalnum()]
        return "-".join([*words[:3], f"{self.cores}cores"]).lower()


def fingerprint() -> Machine:
    """This machine, now."""
    return Machine(
        cpu=_cpu_model(),
        cores=usable_cores(),
        cores_of_machine=os.cpu_count() or 1,
        memory_gb=_memory_gb(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        packages={name: version for name in _PACKAGES if (version := _version(name))},
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    )


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


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
