"""What processes cost: processor time, memory, descriptors, what they hold of a GPU.

Read from /proc (and asked of nvidia-smi). Where there is none the answer is None: never a guess.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable

from shoal.engine.machine import has_gpu_open

_NS = 1e-9
_SMI = (
    "nvidia-smi",
    "--query-compute-apps=pid,used_gpu_memory",
    "--format=csv,noheader,nounits",
)
_SMI_LIMIT_S = 10.0


def descendants(pid: int | None = None) -> list[int]:
    """The processes below this one, by whatever way they came there."""
    below: dict[int, list[int]] = defaultdict(list)
    for child, parent in _parents():
        below[parent].append(child)
    found, todo = [], [os.getpid() if pid is None else pid]
    while todo:
        children = below[todo.pop()]
        found += children
        todo += children
    return sorted(found)


def leaves(pids: Iterable[int]) -> list[int]:
    """Those that have no children among them: workers, not what workers come from."""
    chosen = set(pids)
    return sorted(chosen - {parent for child, parent in _parents() if child in chosen})


def cpu_s(pids: Iterable[int]) -> float | None:
    """Processor time of live processes, all their threads; one that has just gone counts as none.

    /proc/<pid>/stat counts in hundredths of a second, too coarse for a pause of one second, so
    the scheduler's own figures are used where there are any.
    """
    if not _has_proc():
        return None
    return sum(_cpu_of_s(pid) for pid in pids)


def busy_s() -> float | None:
    """Processor time that the whole machine has spent at work since it was started."""
    lines = _lines("/proc/stat")
    if not lines:
        return None
    user, nice, system, _, _, *interrupts = map(int, lines[0].split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float | None:
    """Memory of a process, what it shares divided among those who share it (PSS); else RSS."""
    for file, key in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        for line in _lines(f"/proc/{pid}/{file}"):
            if line.startswith(key):
                return int(line.split()[1]) / 1024
    return None


def gpu_users(pids: Iterable[int]) -> list[int]:
    """Those that have a GPU open."""
    return [pid for pid in pids if has_gpu_open(pid)]


def gpu_mb(pids: Iterable[int]) -> float | None:
    """Memory of GPUs that processes hold; None where nvidia-smi knows none of them.

    In a container it may know them by the numbers that they have outside.
    """
    try:
        done = subprocess.run(_SMI, capture_output=True, text=True, timeout=_SMI_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    held = gpu_memory_of(done.stdout)
    known = [held[pid] for pid in pids if pid in held]
    return sum(known) if known else None


def gpu_memory_of(said: str) -> dict[int, float]:
    """MB by process, from what nvidia-smi says of them: "PID, MB" lines; "[N/A]" is nothing."""
    held: dict[int, float] = defaultdict(float)
    for line in said.splitlines():
        pid, _, size = (word.strip() for word in line.partition(","))
        if pid.isdigit() and size.isdigit():
            held[int(pid)] += float(size)
    return dict(held)


def num_descriptors() -> int | None:
    """Files, sockets and the like that this process has open."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return None


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def _parents() -> Iterable[tuple[int, int]]:
    """Every process with its parent."""
    for name in os.listdir("/proc") if _has_proc() else ():
        fields = _stat(int(name)) if name.isdigit() else []
        if fields:
            yield int(name), int(fields[1])


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name, which may hold blanks and brackets."""
    lines = _lines(f"/proc/{pid}/stat")
    return lines[0].rpartition(")")[2].split() if lines else []


def _cpu_of_s(pid: int) -> float:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0.0
    precise = [_lines(f"/proc/{pid}/task/{thread}/schedstat") for thread in threads]
    if precise and all(precise):
        return sum(int(lines[0].split()[0]) for lines in precise) * _NS
    fields = _stat(pid)
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().splitlines()
    except OSError:  # gone, or not ours
        return []
