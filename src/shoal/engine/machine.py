"""What this machine offers: cores really usable, and which of the system's means are at hand.

`SHOAL_PORTABLE=1` in the environment switches off everything that only Linux has, so that what
macOS gets can be tested under Linux.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import sys


def is_portable() -> bool:
    """Whether to do without memfd, pidfd, fork, and semaphores inside shared memory."""
    return not sys.platform.startswith("linux") or os.environ.get("SHOAL_PORTABLE", "0") not in (
        "",
        "0",
    )


def resident_kb() -> int:
    """Memory of this process that is in use now (where that cannot be known: its most so far)."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)
    except (OSError, ValueError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak


def usable_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its control group."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    quota = cpu_quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def free_memory_mb(root: str | os.PathLike[str] = "/sys/fs/cgroup") -> float | None:
    """Memory that can still be used: the system's, or less by the limit of the control group."""
    rooms = []
    try:
        with open("/proc/meminfo") as file:
            available = next(line for line in file if line.startswith("MemAvailable:"))
        rooms.append(int(available.split()[1]) / 1024)
    except (OSError, ValueError, StopIteration):
        pass
    for limit, used in _MEMORY_FILES:
        try:
            rooms.append((int(_words(root, limit)[0]) - int(_words(root, used)[0])) / (1 << 20))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return max(0.0, min(rooms)) if rooms else None


_MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def total_memory_mb(root: str | os.PathLike[str] = "/sys/fs/cgroup") -> float | None:
    """Memory that there is: the system's, or less by the limit of the control group."""
    limits = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 20))
    for limit, _ in _MEMORY_FILES:
        with contextlib.suppress(OSError, ValueError):  # there is none, or it says "max"
            limits.append(int(_words(root, limit)[0]) / (1 << 20))
    return min(limits) if limits else None


def descriptor_limits() -> tuple[int, int] | None:
    """How many files this process may have open, and up to how many it may raise that itself."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def free_descriptors() -> int | None:
    """How many more files this process may open; None where that cannot be told."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return limit - len(os.listdir("/proc/self/fd"))
    except (ImportError, OSError):
        return None


_GPU_DEVICES = ("/dev/nvidia", "/dev/kfd")


def has_gpu_open(pid: int | str = "self") -> bool:
    """Whether a process has a GPU open (Linux)."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(_GPU_DEVICES):
                    return True
    return False


def cpu_quota(root: str | os.PathLike[str] = "/sys/fs/cgroup") -> float | None:
    """The CPU quota in cores, from version 2 (cpu.max) or 1 (cfs) of control groups."""
    try:
        quota, period = _words(root, "cpu.max")[:2]
    except (OSError, ValueError):
        try:
            (quota,) = _words(root, "cpu/cpu.cfs_quota_us")
            (period,) = _words(root, "cpu/cpu.cfs_period_us")
        except (OSError, ValueError):
            return None
    if quota in ("max", "-1") or not quota.isdigit() or int(period) == 0:
        return None
    return int(quota) / int(period)


def _words(root: str | os.PathLike[str], name: str) -> list[str]:
    with open(os.path.join(root, name)) as file:
        return file.read().split()


def is_trusted(folder: str) -> bool:
    """Whether modules may be looked for there: not where every user of the machine may put some."""
    return os.path.isdir(folder) and not os.stat(folder).st_mode & stat.S_IWOTH
