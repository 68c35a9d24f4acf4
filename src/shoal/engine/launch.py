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
    is_of_lasting_thread: bool = True
    """Whether the thread that started it lives as long as its process."""

    @property
    def fds(self) -> tuple[int, ...]:
        return (self.channel_fd, self.signals_fd, self.store_fd)


def become_worker(outfit: Outfit) -> None:
    """Turn this fresh process into a worker."""
    os.setpgid(0, 0)
    die_with_parent(outfit.parent_pid, by_signal=outfit.is_of_lasting_thread)
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


def die_with_parent(parent_pid: int, *, by_signal: bool) -> None:
    """End this process when its parent goes; at once if it has gone.

    The kernel can see to it (Linux), but it takes the *thread* that forked for the parent. Threads
    of the caller come and go, so what they fork watches for itself, from a thread of its own.
    """
    if by_signal and sys.platform.startswith("linux"):
        set_death_signal(signal.SIGKILL)
    elif not by_signal:
        threading.Thread(target=_watch, args=(parent_pid,), daemon=True).start()
    if os.getppid() != parent_pid:
        os._exit(1)


def set_death_signal(number: int) -> None:
    """The signal that this process gets when the thread that started it ends (Linux); 0: none."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


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
