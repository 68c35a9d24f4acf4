"""How a process becomes a worker, and how one that ended is described. The worker's own side.

Before any of the user's code runs, a worker stands in a process group of its own (so that its
children go with it), dies with its parent, leaves Ctrl-C to the caller and has one thread per
numeric library.
"""

from __future__ import annotations

import ctypes
import faulthandler
import io
import os
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import TextIO

ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "BLIS_NUM_THREADS",
    ),
    "1",
)
"""Set in the environment that workers start with, never in the caller's."""

importing = False
"""Whether this process, a server or a worker, is importing what the user's environments need."""

_PR_SET_PDEATHSIG = 1
_WATCH_PARENT_S = 0.5
_HIGHEST_FD = 1 << 16


@dataclass(frozen=True, slots=True)
class Outfit:
    """What a worker process is given to start with: its number and its open descriptors."""

    number: int
    parent_pid: int
    channel_fd: int
    signals_fd: int
    store_fd: int
    output_fds: tuple[int, int] | None = None
    """Where its output goes; None where that is settled already."""
    is_fork_of_caller: bool = False

    @property
    def fds(self) -> tuple[int, ...]:
        return (self.channel_fd, self.signals_fd, self.store_fd)


def become_worker(outfit: Outfit) -> None:
    """Turn this fresh process into a worker."""
    os.setpgid(0, 0)
    die_with_parent(outfit.parent_pid, is_fork_of_caller=outfit.is_fork_of_caller)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if outfit.output_fds is not None:
        for target, source in enumerate(outfit.output_fds, start=1):
            os.dup2(source, target)
            os.close(source)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(line_buffering=True)
    if outfit.is_fork_of_caller:
        # Numeric libraries that the caller has loaded keep their threads; only new ones obey.
        os.environ.update(ONE_THREAD)
        sys.stdout, sys.stderr = (_Numbered(out, outfit.number) for out in (sys.stdout, sys.stderr))
    faulthandler.enable(file=2, all_threads=False)


class _Numbered(io.TextIOBase):
    """A stream that puts the worker's number before each line, where no server does."""

    def __init__(self, stream: TextIO, number: int) -> None:
        self._stream, self._prefix, self._rest = stream, f"[worker {number}] ", ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        self._stream.write("".join(f"{self._prefix}{line}\n" for line in lines))
        self._stream.flush()
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def die_with_parent(parent_pid: int, *, is_fork_of_caller: bool) -> None:
    """End this process when its parent goes; at once if it has gone.

    The kernel can see to it (Linux), but it takes the *thread* that forked for the parent, and it
    leaves the children of this process alone. A server has one thread, and ends the groups of its
    workers itself. Threads of the caller come and go, so what they fork is watched over.
    """
    if not is_fork_of_caller:
        set_death_signal(signal.SIGKILL)
    elif hasattr(os, "pidfd_open"):
        _start_guard(parent_pid)
    else:
        threading.Thread(target=_watch, args=(parent_pid,), daemon=True).start()
    if os.getppid() != parent_pid:
        os._exit(1)


def set_death_signal(number: int) -> None:
    """The signal that this process gets when the thread that started it ends (Linux); 0: none."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def _start_guard(parent_pid: int) -> None:
    """A process in this one's group that ends the group when this one or its parent is gone.

    A thread could not do it: an environment may hold the interpreter for as long as it likes. And
    it is nobody's child, lest an environment that waits for its own children meets it.
    """
    worker_pid = os.getpid()
    if between := os.fork():
        os.waitpid(between, 0)
        return
    if os.fork():
        os._exit(0)
    try:
        os.closerange(0, _HIGHEST_FD)  # what others wait for the end of
        poll = select.poll()
        for pid in (parent_pid, worker_pid):
            poll.register(os.pidfd_open(pid), select.POLLIN)
        poll.poll()
    finally:
        os.killpg(worker_pid, signal.SIGKILL)  # itself included


def _watch(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_WATCH_PARENT_S)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def describe_exit(status: int | None) -> str:
    """A wait status in words: which signal, or which exit code."""
    if status is None:
        return "ended in an unknown way"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        return f"was killed by {name}"
    return f"exited with code {os.waitstatus_to_exitcode(status)}"
