"""Is this installation in order? What the machine offers, and whether every backend runs on it.

Everything found is a `Sign`: a value, and where something is amiss a sentence
that says what to do. Nothing here raises for a problem that has a name.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.engine.machine import (
    cpu_quota,
    free_descriptors,
    free_memory_mb,
    is_portable,
    usable_cores,
)
from shoal.errors import ShoalError
from shoal.testing.worlds import CountingWorld

PACKAGES = (
    "numpy",
    "gymnasium",
    "cloudpickle",
    "torch",
    "stable-baselines3",
    "pettingzoo",
    "mpe2",
    "ray",
    "mujoco",
    "ale-py",
    "box2d",
    "pyboy",
    "agilerl",
    "tianshou",
    "torchrl",
    "pufferlib",
    "envpool",
    "wandb",
    "tensorboard",
    "matplotlib",
)
LITTLE_MEMORY_MB = 500.0
LITTLE_SHM_MB = 128.0
_START_TIMEOUT_S = 60.0


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
    value = f"{free_mb:,.0f} MB free"
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
    value = f"{free:,} files can still be opened"
    if free >= 2 * needed:
        return Sign("descriptors", value)
    return Sign(
        "descriptors",
        value,
        f"A worker for each core needs {needed}: raise the limit (ulimit -n 4096) or use fewer "
        "workers. The number of environments does not matter.",
    )


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
    """What PyTorch sees; without it nobody is asked."""
    if importlib.util.find_spec("torch") is None:
        return Sign("GPU", "not looked for: PyTorch is not installed")
    try:
        torch: Any = importlib.import_module("torch")
        count = torch.cuda.device_count()
        names = [torch.cuda.get_device_name(k) for k in range(count)]
    except Exception as problem:  # a broken driver has as many names as there are drivers
        return Sign(
            "GPU",
            f"PyTorch cannot tell ({type(problem).__name__}: {problem})",
            "Install a PyTorch that fits the driver. Environments do not need it.",
        )
    return Sign("GPU", ", ".join(names) if names else "none that PyTorch can use")


# --- every backend -----------------------------------------------------------------------------

NUM_ENVS, NUM_WORKERS, NUM_STEPS, SEED = 5, 2, 60, 7


def backends() -> tuple[tuple[str, str | None], ...]:
    """Every backend, and every way to start its workers; the first is what others must equal."""
    methods = start_methods()
    processes = tuple(("process", method) for method in methods)
    hybrid = (("hybrid", None),) if methods else ()
    return (("serial", None), ("thread", None), *processes, *hybrid)


def try_backends(world: Callable[[], Any] | None = None) -> Iterator[Sign]:
    """Run the same episodes on every backend; all must come out as on the first, bit for bit."""
    expected: str | None = None
    for backend, method in backends():
        name = backend if method is None else f"{backend} ({method})"
        begun = time.perf_counter()
        try:
            trace = trace_of(world or _world, backend, method)
        except (ShoalError, OSError, MemoryError) as problem:
            first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            yield Sign(name, f"{type(problem).__name__}", first, is_fatal=True)
            continue
        expected = expected or trace
        if trace != expected:
            yield Sign(
                name,
                "other results than serial",
                "The same seed must give the same trajectories. Please report this, with all that "
                "stands above.",
                is_fatal=True,
            )
            continue
        yield Sign(name, f"ok ({time.perf_counter() - begun:.2f} s)")


def _world() -> CountingWorld:
    return CountingWorld(obs="dict", infos="mixed")


def trace_of(world: Callable[[], Any], backend: str, start_method: str | None) -> str:
    """A digest of all that comes back from some episodes."""
    from shoal.vector.make import Faults, make

    digest = hashlib.sha256()
    with make(
        world,
        NUM_ENVS,
        backend=backend,
        num_workers=NUM_WORKERS,
        start_method=start_method,
        autoreset="same_step",
        on_failure="raise",
        faults=Faults(start_timeout_s=_START_TIMEOUT_S),
    ) as envs:
        envs.action_space.seed(SEED)
        _digest(digest, envs.reset(seed=SEED))
        for _ in range(NUM_STEPS):
            _digest(digest, envs.step(envs.action_space.sample()))
    return digest.hexdigest()


def _digest(digest: Any, value: Any) -> None:
    """Every key, type, shape and byte, in order."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            digest.update(str(key).encode())
            _digest(digest, value[key])
    elif isinstance(value, np.ndarray) and value.dtype != object:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, tuple | list | np.ndarray):
        for one in value:
            _digest(digest, one)
    else:
        digest.update(f"{type(value).__name__}{value!r}".encode())
