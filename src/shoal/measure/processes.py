"""What processes cost, read from /proc: processor time, memory, descriptors of live processes.

Where there is no /proc the answer is None: never a guess.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

_NS = 1e-9


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
