"""The server itself: the process that starts workers, passes on their output and buries them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal.engine import launch
from shoal.engine.launch import Outfit, become_worker
from shoal.engine.line import Line
from shoal.engine.machine import is_portable
from shoal.engine.output import Stream, Target
from shoal.engine.zygote import start_interpreter

_WATCH_PARENT_S = 0.5
_LAST_OUTPUT_S = 1.0
"""How long the end of the server is held up for what workers have printed."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a fork of the zygote has to take over from the caller."""

    path: list[str]
    folder: str
    environment: dict[str, str]
    cores: set[int]

    def adopt(self) -> None:
        sys.path[:] = self.path
        with contextlib.suppress(OSError):
            os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        os.sched_setaffinity(0, self.cores)


@dataclass(frozen=True, slots=True)
class Hello:
    """What a server is told before anything else."""

    preload: tuple[str, ...]
    fork: bool
    surroundings: Surroundings | None


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    streams: list[Stream]


class Nursery:
    """One thread, one loop over orders, output and deaths."""

    def __init__(self, line: Line, parent_pid: int) -> None:
        self._line, self._parent_pid = line, parent_pid
        self._children: dict[int, _Child] = {}
        """By their keys."""
        self._reports: deque[tuple[Any, list[int]]] = deque()
        """Those that the caller has no room for yet, with their descriptors."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ, self._talk)
        self._wake_r, self._wake_w = os.pipe()
        for fd in (self._wake_r, self._wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._wake_r, selectors.EVENT_READ, lambda _: self._bury())
        self._targets = [Target(fd, self._selector) for fd in (1, 2)]
        self._fork = True

    def run(self) -> None:
        """Serve until the line ends (EOFError or OSError) or the parent is gone."""
        hello = self._meet()
        self._import(hello.preload)
        self._fork = hello.fork and _thread_count() == 1
        while os.getppid() == self._parent_pid:
            ready = self._selector.select(_WATCH_PARENT_S)
            # Deaths come last: they close what the others may be about.
            for key, mask in sorted(ready, key=lambda one: one[0].fd == self._wake_r):
                key.data(mask)

    def _meet(self) -> Hello:
        received = self._line.receive()
        if received is None:
            raise EOFError
        (letter,) = received[1]
        hello: Hello = pickle.loads(os.pread(letter, os.fstat(letter).st_size, 0))
        os.close(letter)
        if hello.surroundings is not None:
            hello.surroundings.adopt()
        self._report(("here",), None if is_portable() else os.pidfd_open(os.getpid()))
        return hello

    def _import(self, names: Sequence[str]) -> None:
        # Nobody looks for the caller while a module takes its time; later on that must not be left
        # to a signal, which would not reach the children of workers.
        launch.set_death_signal(signal.SIGKILL)
        if os.getppid() != self._parent_pid:
            raise EOFError
        launch.importing = True
        for name in names:
            # What fails here fails again in the worker, where there is someone to tell.
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
        launch.importing = False
        launch.set_death_signal(0)

    def _talk(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._tell()
        if mask & selectors.EVENT_READ and (received := self._line.receive()) is not None:
            (order, key, *rest), fds = received
            if order == "start":
                self._start(key, rest[0], fds)
            elif key in self._children:
                _kill_group(self._children[key].pid)

    def _report(self, message: Any, fd: int | None = None) -> None:
        self._reports.append((message, [] if fd is None else [fd]))
        self._tell()

    def _tell(self) -> None:
        """Send what there is room for; the caller may be busy, and nobody else waits for him."""
        with contextlib.suppress(BlockingIOError):
            while self._reports:
                message, fds = self._reports[0]
                self._line.send(message, fds)
                self._reports.popleft()
                for fd in fds:
                    os.close(fd)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._reports else 0)
        self._selector.modify(self._line, events, self._talk)

    def _start(self, key: int, number: int, fds: list[int]) -> None:
        pipes = [os.pipe(), os.pipe()]
        channel, signals, store = fds
        outputs_w = (pipes[0][1], pipes[1][1])
        outfit = Outfit(number, os.getpid(), channel, signals, store, outputs_w)
        reading = [r for r, _ in pipes]
        pid = self._fork_worker(outfit, reading) if self._fork else _spawn_worker(outfit)
        for fd in (*outfit.fds, *outputs_w):
            os.close(fd)
        streams = [
            Stream(fd, number, target) for fd, target in zip(reading, self._targets, strict=True)
        ]
        for stream in streams:
            self._selector.register(
                stream.fd, selectors.EVENT_READ, functools.partial(self._pump, stream)
            )
        self._children[key] = _Child(pid, streams)
        self._report(("started", key, pid), None if is_portable() else os.pidfd_open(pid))

    def _fork_worker(self, outfit: Outfit, reading: list[int]) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            self._selector.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            others = [stream.fd for child in self._children.values() for stream in child.streams]
            others += [target.fd for target in self._targets if target.fd > 2]
            for fd in [self._wake_r, self._wake_w, *reading, *others]:
                with contextlib.suppress(OSError):
                    os.close(fd)
            self._line.close()
            code = run_worker(outfit)
        finally:
            os._exit(code)

    def _pump(self, stream: Stream, _: int) -> None:
        if stream.pump() is None:
            self._selector.unregister(stream.fd)

    def _bury(self) -> None:
        """Report the children that have ended; their own children end with them."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_r, 4096)
        for key, child in list(self._children.items()):
            if os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            _kill_group(child.pid)
            _, status = os.waitpid(child.pid, 0)
            del self._children[key]
            for stream in child.streams:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(stream.fd)
                stream.finish()
            self._report(("exited", key, status, child.streams[1].last_words()))

    def close(self) -> None:
        """End all workers, pass on their last output, and let go of everything."""
        for child in self._children.values():
            _kill_group(child.pid)
        for child in self._children.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            for stream in child.streams:
                stream.finish()
        deadline = time.monotonic() + _LAST_OUTPUT_S
        for target in self._targets:
            target.drain(deadline)
        self._selector.close()
        self._line.close()


def main(control_fd: int, parent_pid: int) -> None:
    """The server's program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(control_fd, False)
    nursery = Nursery(Line(socket.socket(fileno=control_fd)), parent_pid)
    try:
        nursery.run()
    except (EOFError, OSError):
        pass  # the caller has hung up, or is gone
    finally:
        nursery.close()


def run_worker(outfit: Outfit, order: Any = None) -> int:
    """A worker's program, whatever started it; the exit code.

    A fork of the caller is handed its order; others get it through their channel.
    """
    become_worker(outfit)
    from shoal.engine.backends.process.inside import work

    try:
        work(outfit, order)
        return 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()


def _spawn_worker(outfit: Outfit) -> int:
    """A fresh interpreter, where forking is not possible or not wanted."""
    assert outfit.output_fds is not None
    kept = replace(outfit, output_fds=None)
    code = (
        "from shoal.engine.launch import Outfit; from shoal.engine.nursery import run_worker; "
        f"sys.stdout.reconfigure(line_buffering=True); sys.exit(run_worker({kept!r}))"
    )
    out, err = outfit.output_fds
    process = start_interpreter(code, list(outfit.fds), stdout=out, stderr=err)
    process.returncode = 0  # waited for by _bury, not by its destructor
    return process.pid


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # before it stands in its own group there is only the pid
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _thread_count() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        import threading

        return threading.active_count()
