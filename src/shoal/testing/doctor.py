"""Is this installation in order? What the machine offers, and what is installed.

Everything found is a `Sign`: a value, and where something is amiss a sentence
that says what to do. Nothing here raises for a problem that has a name. Whether everything runs is
tried in `trials.py`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.engine.machine import (
    cpu_quota,
    descriptor_limits,
    free_descriptors,
    free_memory_mb,
    is_portable,
    total_memory_mb,
    usable_cores,
)

PACKAGES = (
    "numpy",
    "gymnasium",
    "cloudpickle",
    "torch",
    "stable-baselines3",
    "sb3-contrib",
    "pettingzoo",
    "supersuit",
    "mpe2",
    "ray",
    "mujoco",
    "ale-py",
    "box2d",
    "pyboy",
    "agilerl",
    "tianshou",
    "torchrl",
    "pufferlib-core",
    "pufferlib",
    "envpool",
    "wandb",
    "tensorboard",
    "matplotlib",
)
LITTLE_MEMORY_MB = 500.0
LITTLE_SHM_MB = 128.0
_SMI = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
_SMI_LIMIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that was looked at."""

    name: str
    value: str
    advice: str = ""
    """What to do about it, where something is amiss."""
    is_fatal: bool = False
    """Whether Shoal does not work like this."""


# --- the machine -------------------------------------------------------------------------------


def examine() -> Iterator[Sign]:
    """What this machine offers, one sign after another."""
    for look in (_system, _cores, _memory, _descriptors, _shm, _shared_memory, _starts, _gpu):
        yield look()


def packages() -> Iterator[Sign]:
    """The versions of what is installed; nothing is imported for that."""
    for name in PACKAGES:
        try:
            yield Sign(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            continue


def _system() -> Sign:
    return Sign("system", f"{platform.platform()}, Python {platform.python_version()}")


def _cores() -> Sign:
    usable, there, quota = usable_cores(), os.cpu_count() or 1, cpu_quota()
    value = f"{usable} usable of {there}"
    if quota is not None:
        value += f", by a quota of {quota:g}"
    if usable > 1:
        return Sign("cores", value)
    cause = "a quota" if quota is not None else "its affinity" if there > 1 else "the machine"
    return Sign(
        "cores",
        value,
        f"One core (by {cause}): environments that compute gain nothing from workers; those that "
        "wait do. Give the container or the job more (docker run --cpus, SLURM --cpus-per-task).",
    )


def _memory() -> Sign:
    free_mb = free_memory_mb()
    if free_mb is None:
        return Sign("memory", "unknown")
    there_mb = total_memory_mb()
    value = f"{free_mb:,.0f} MB free" + ("" if there_mb is None else f" of {there_mb:,.0f}")
    if free_mb >= LITTLE_MEMORY_MB:
        return Sign("memory", value)
    return Sign(
        "memory",
        value,
        "A worker process needs some tens of MB beside its environments: use fewer workers, or "
        "raise the limit of the container (docker run --memory).",
    )


def _descriptors() -> Sign:
    free = free_descriptors()
    if free is None:
        return Sign("descriptors", "unknown")
    needed = 2 * usable_cores() + 16
    value = f"{free:,} files can still be opened{_limits()}"
    if free >= 2 * needed:
        return Sign("descriptors", value)
    return Sign(
        "descriptors",
        value,
        f"A worker for each core needs {needed}: raise the limit (ulimit -n 4096) or use fewer "
        "workers. The number of environments does not matter.",
    )


def _limits() -> str:
    limits = descriptor_limits()
    if limits is None:
        return ""
    soft, hard = ("none" if limit < 0 else f"{limit:,}" for limit in limits)
    return f" (limit {soft}, hard limit {hard})"


def _shm(path: str = "/dev/shm") -> Sign:
    try:
        size_mb = shutil.disk_usage(path).total / (1 << 20)
    except OSError:
        return Sign(path, "not there (Shoal does not need it)")
    value = f"{size_mb:,.0f} MB (Shoal does not use it)"
    if size_mb >= LITTLE_SHM_MB:
        return Sign(path, value)
    return Sign(
        path,
        value,
        "Other libraries do use it (PyTorch's DataLoader, Ray): docker run --shm-size=1g.",
    )


def _shared_memory() -> Sign:
    from shoal.engine.memory import Memory

    where = f"files in {tempfile.gettempdir()}" if is_portable() else "memfd"
    try:
        memory = Memory.create()
        memory.resize(1 << 20)
        memory.close()
    except (OSError, ValueError) as problem:
        return Sign(
            "shared memory",
            f"{where}: {problem}",
            "Rows of worker processes live there. Make the folder for temporary files (TMPDIR) "
            "writable, free some space, or use backend='serial' or 'thread'.",
            is_fatal=True,
        )
    return Sign("shared memory", where)


def _starts() -> Sign:
    names = start_methods()
    if names:
        return Sign("start methods", ", ".join(names))
    return Sign(
        "start methods",
        "none",
        "There is no process backend on this system yet: use backend='thread' or 'serial'.",
    )


def start_methods() -> tuple[str, ...]:
    """How worker processes can be started here."""
    if os.name == "nt":
        return ()
    return ("spawn",) if is_portable() else ("forkserver", "spawn", "fork")


def _gpu() -> Sign:
    """Whether there is one, and whether PyTorch can use it.

    PyTorch only counts: to name them it would initialise CUDA, and no worker could be forked then.
    """
    there = ", ".join(gpus())
    if importlib.util.find_spec("torch") is None:
        return Sign("GPU", f"{there or 'none'} (PyTorch is not installed)")
    try:
        count = importlib.import_module("torch").cuda.device_count()
    except Exception as problem:  # a broken driver has as many names as there are drivers
        return Sign(
            "GPU",
            f"PyTorch cannot tell ({type(problem).__name__}: {problem})",
            "Install a PyTorch that fits the driver. Environments do not need it.",
        )
    if count:
        return Sign("GPU", f"{count} that PyTorch can use" + (f" ({there})" if there else ""))
    if not there:
        return Sign("GPU", "none that PyTorch can use")
    return Sign(
        "GPU",
        f"{there}, which PyTorch cannot use",
        "Training would be on the CPU: install a PyTorch built for CUDA that fits the driver.",
    )


def gpus(folder: str | os.PathLike[str] = "/proc/driver/nvidia/gpus") -> list[str]:
    """The names of NVIDIA's, as the driver tells them, or nvidia-smi where there is no /proc."""
    told = [file.read_text(errors="replace") for file in Path(folder).glob("*/information")]
    lines = [line.partition(":") for text in told for line in text.splitlines()]
    if names := [value.strip() for key, _, value in lines if key == "Model"]:
        return names
    try:
        done = subprocess.run(_SMI, capture_output=True, text=True, timeout=_SMI_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines()] if done.returncode == 0 else []
