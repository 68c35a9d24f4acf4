"""The process that workers come from, and the caller's handle on it.

    caller ──── control socket ────► server ──fork or spawn──► worker 0, 1, 2, ...
      ▲   ◄──── started, exited ───    │ ◄─── stdout, stderr ────┘
      └──────── channel, shared memory (passed through) ─────────┘

Each pool has a server of its own, a fork of the zygote: it never saw the user's script, has one
thread and its own environment, and imports what the environments need, so that a worker is a fork
away. It passes on what workers print, reports how they ended, and when the caller is gone, however
it went, it takes all workers and their children with it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from shoal.engine import launch
from shoal.engine.launch import ONE_THREAD, Outfit, become_worker
from shoal.engine.machine import is_portable
from shoal.engine.output import Stream, Target
from shoal.engine.zygote import Zygote, start_interpreter
from shoal.errors import WorkerDied, WorkerTimeout

_WATCH_PARENT_S = 0.5
_LAST_OUTPUT_S = 1.0
"""How long the end of the server is held up for what workers have printed."""


class Server:
    """The caller's handle: starts workers and knows how they ended."""

    def __init__(self, preload: Sequence[str], *, fork: bool) -> None:
        self._socket, theirs = socket.socketpair()
        self._control = Connection(os.dup(self._socket.fileno()))
        self._exits: dict[int, tuple[int | None, str]] = {}
        self._preload = ", ".join(preload)
        self._zygote = None if is_portable() else Zygote.lease()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            if self._zygote is not None:
                self._pid = self._zygote.fork_server(theirs.fileno())
            else:
                self._process = _start_server(theirs.fileno())
                self._pid = self._process.pid
        finally:
            theirs.close()
        self._control.send({"preload": list(preload), "fork": fork})

    def start(self, number: int, fds: Sequence[int], deadline: float) -> tuple[int, int | None]:
        """Start a worker that inherits these descriptors; its pid and, on Linux, its pidfd."""
        try:
            self._control.send(("start", number))
            socket.send_fds(self._socket, [b"."], list(fds))
            while self._control.poll(max(0.0, deadline - time.monotonic())):
                if (message := self._control.recv())[0] == "started":
                    _, pid, has_pidfd = message
                    return pid, socket.recv_fds(self._socket, 1, 1)[1][0] if has_pidfd else None
                self._note_exit(message)
        except (EOFError, OSError):
            raise WorkerDied(
                f"worker {number} could not be started: importing {self._preload} ended the "
                "process. Try `python -c 'import ...'` with these.",
                worker=number,
                phase="start",
            ) from None
        raise WorkerTimeout(
            f"worker {number} has not started in time: importing {self._preload} takes too long. "
            "Raise start_timeout_s if it must.",
            worker=number,
            phase="start",
        )

    def exit_of(self, pid: int, timeout_s: float = 2.0) -> tuple[int | None, str]:
        """Wait status and last words (stderr) of a worker that has ended."""
        self._listen_until(lambda: pid in self._exits, timeout_s)
        return self._exits.get(pid, (None, ""))

    def has_exited(self, pid: int) -> bool:
        """Whether the end of this worker, or of the server itself, has been reported."""
        return self._listen_until(lambda: pid in self._exits, 0.0) != "waiting"

    def has_ended(self) -> bool:
        """Whether the server itself is gone."""
        return self._listen_until(lambda: False, 0.0) == "ended"

    def kill(self, pid: int) -> None:
        """End a worker and its children now."""
        with contextlib.suppress(OSError):
            self._control.send(("kill", pid))

    def close(self, timeout_s: float = 5.0) -> None:
        """End the server and with it whatever is left of its workers."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if self._listen_until(lambda: False, timeout_s) == "waiting":
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        self._control.close()
        self._socket.close()
        if self._process is not None:
            self._process.wait()
        if self._zygote is not None:
            self._await_end(time.monotonic() + 1.0)
            self._zygote.release()

    def _await_end(self, deadline: float) -> None:
        """It ends a moment after its last message, and nobody waits for a fork of the zygote."""
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.kill(self._pid, 0)
                time.sleep(0.0005)

    def _listen_until(self, satisfied: Callable[[], bool], timeout_s: float) -> str:
        """Take reports until one satisfies, the server has ended, or the time is up."""
        deadline = time.monotonic() + timeout_s
        try:
            while not satisfied():
                if not self._control.poll(max(0.0, deadline - time.monotonic())):
                    return "waiting"
                self._note_exit(self._control.recv())
        except (EOFError, OSError):
            return "ended"
        return "satisfied"

    def _note_exit(self, message: Any) -> None:
        _, pid, status, tail = message
        self._exits[pid] = (status, tail)


def _start_server(control_fd: int) -> subprocess.Popen[bytes]:
    """A server that is an interpreter of its own, where there is no fork."""
    code = f"from shoal.engine.server import main; main({control_fd}, {os.getpid()})"
    environment = os.environ | ONE_THREAD
    return start_interpreter(code, [control_fd], env=environment, start_new_session=True)


@dataclass
class _Child:
    pid: int
    streams: list[Stream]


class _Nursery:
    """The server itself: one thread, one loop over control, output and deaths."""

    def __init__(self, control_fd: int, parent_pid: int) -> None:
        self._socket = socket.socket(fileno=control_fd)
        self._control = Connection(os.dup(control_fd))
        self._parent_pid = parent_pid
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._control, selectors.EVENT_READ, lambda _: self._obey())
        self._wake_r, self._wake_w = os.pipe()
        for fd in (self._wake_r, self._wake_w):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(self._wake_r, selectors.EVENT_READ, lambda _: self._bury())
        self._targets = [Target(fd, self._selector) for fd in (1, 2)]
        self._fork = True

    def run(self) -> None:
        hello = self._control.recv()
        # Nobody looks for the caller while a module takes its time; later on that must not be left
        # to a signal, which would not reach the children of workers.
        launch.set_death_signal(signal.SIGKILL)
        launch.importing = True
        for name in hello["preload"]:
            # What fails here fails again in the worker, where there is someone to tell.
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
        launch.importing = False
        launch.set_death_signal(0)
        self._fork = hello["fork"] and _thread_count() == 1
        try:
            while os.getppid() == self._parent_pid:
                ready = self._selector.select(_WATCH_PARENT_S)
                # Deaths come last: they close what the others may be about.
                for key, mask in sorted(ready, key=lambda one: one[0].fd == self._wake_r):
                    key.data(mask)
        except (EOFError, OSError):
            pass  # the caller has closed the control socket, or is gone

    def _obey(self) -> None:
        order, argument = self._control.recv()
        if order == "start":
            self._start(argument)
        elif argument in self._children:
            _kill_group(argument)

    def _start(self, number: int) -> None:
        _, fds, _, _ = socket.recv_fds(self._socket, 1, 3)
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
        self._children[pid] = _Child(pid, streams)
        pidfd = None if is_portable() else os.pidfd_open(pid)
        self._control.send(("started", pid, pidfd is not None))
        if pidfd is not None:
            socket.send_fds(self._socket, [b"."], [pidfd])
            os.close(pidfd)

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
            self._control.close()
            self._socket.close()
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
        for pid in list(self._children):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            _kill_group(pid)
            _, status = os.waitpid(pid, 0)
            child = self._children.pop(pid)
            for stream in child.streams:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(stream.fd)
                stream.finish()
            self._control.send(("exited", pid, status, child.streams[1].last_words()))

    def close(self) -> None:
        """End all workers, pass on their last output, and let go of everything."""
        for pid in self._children:
            _kill_group(pid)
        for child in self._children.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            for stream in child.streams:
                stream.finish()
        deadline = time.monotonic() + _LAST_OUTPUT_S
        for target in self._targets:
            target.drain(deadline)
        self._selector.close()
        self._control.close()
        self._socket.close()


def main(control_fd: int, parent_pid: int) -> None:
    """The server's program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(control_fd, False)
    nursery = _Nursery(control_fd, parent_pid)
    try:
        nursery.run()
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
        "from shoal.engine.launch import Outfit; from shoal.engine.server import run_worker; "
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
