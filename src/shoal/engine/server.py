"""The process that workers come from, and the caller's handle on it.

    caller ──────── line ──────────► server ──fork or spawn──► worker 0, 1, 2, ...
      ▲   ◄──── started, exited ───    │ ◄─── stdout, stderr ────┘
      └──────── channel, shared memory (passed through) ─────────┘

Each pool has a server of its own, a fork of the zygote: it never saw the user's script, has one
thread and its own environment, and imports what the environments need, so that a worker is a fork
away. It passes on what workers print, reports how they ended, and when the caller is gone, however
it went, it takes all workers and their children with it.

Every start has a key, which nothing else ever had: what comes late, because the caller was
interrupted while it waited, is taken for nobody else's.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import os
import pickle
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shoal.engine import launch
from shoal.engine.launch import ONE_THREAD, Outfit, become_worker
from shoal.engine.line import Line, is_ready
from shoal.engine.machine import is_portable
from shoal.engine.memory import Memory
from shoal.engine.output import Stream, Target
from shoal.engine.zygote import Zygote, start_interpreter
from shoal.errors import WorkerDied, WorkerError, WorkerTimeout

_WATCH_PARENT_S = 0.5
_LAST_OUTPUT_S = 1.0
"""How long the end of the server is held up for what workers have printed."""
_GRACE_S = 1.0
"""How long a server that is to end now may take."""

Exit = tuple[int | None, str]
"""How a worker ended: wait status, if it is known, and last words (stderr)."""


class Server:
    """The caller's handle: starts workers and knows how they ended."""

    def __init__(self, preload: Sequence[str], *, fork: bool) -> None:
        self._preload, self._keys = ", ".join(preload), itertools.count()
        self._started: dict[int, tuple[int, int | None]] = {}
        self._exits: dict[int, Exit | None] = {}
        """Of each worker until it is asked for; None while it runs."""
        self._is_here = self._has_served = False
        self._pidfd: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._line, theirs = Line.pair()
        try:
            with theirs:
                self._introduce(preload, fork)
                if is_portable():
                    self._process = _start_server(theirs.fileno())
                else:
                    Zygote.lease(self).fork_server(theirs.fileno())
        except BaseException:
            self.close()
            raise

    def _introduce(self, preload: Sequence[str], fork: bool) -> None:
        """Tell it how it is to work, in a file: variables may be longer than a message."""
        hello = _Hello(tuple(preload), fork, None if is_portable() else _surroundings())
        letter = Memory.create()
        os.write(letter.fd, pickle.dumps(hello))
        self._line.send("hello", [letter.fd])
        letter.close()

    def start(
        self, number: int, fds: Sequence[int], deadline: float
    ) -> tuple[int, int, int | None]:
        """Start a worker that inherits these descriptors; its key, pid and, on Linux, pidfd."""
        key = next(self._keys)
        self._exits[key] = None
        try:
            with contextlib.suppress(OSError):  # then the line has ended
                self._line.send(("start", key, number), fds)
            state = self._listen_until(lambda: key in self._started, deadline - time.monotonic())
            if state != "satisfied":
                raise self._refusal(number, has_ended=state == "ended")
            return key, *self._started.pop(key)
        except BaseException:
            self._give_up(key)
            raise

    def _refusal(self, number: int, *, has_ended: bool) -> WorkerError:
        what = self._preload if self._is_here else "numpy, gymnasium and shoal"
        if has_ended:
            return WorkerDied(
                f"worker {number} could not be started: importing {what} ended the process, or it "
                "was killed. What it has printed may say why. Try `python -c 'import ...'` with "
                "these; if that works, make the environments once more.",
                worker=number,
                phase="start",
            )
        return WorkerTimeout(
            f"worker {number} has not started in time: importing {what} takes too long. "
            "Raise start_timeout_s if it must.",
            worker=number,
            phase="start",
        )

    def _give_up(self, key: int) -> None:
        """Nobody waits for this worker any more; should it still start, it ends at once."""
        self.kill(key)
        self._exits.pop(key, None)
        _, pidfd = self._started.pop(key, (0, None))
        if pidfd is not None:
            os.close(pidfd)

    def exit_of(self, key: int, timeout_s: float) -> Exit | None:
        """How a worker ended, told once; None while it runs, as far as is known."""
        state = self._listen_until(lambda: self._exits.get(key) is not None, timeout_s)
        return None if state == "waiting" else self._exits.pop(key, None) or (None, "")

    def has_ended(self) -> bool:
        """Whether the server itself is gone."""
        return self._listen_until(_never, 0.0) == "ended"

    def kill(self, key: int) -> None:
        """End a worker and its children now."""
        with contextlib.suppress(OSError):
            self._line.send(("kill", key))

    def close(self, timeout_s: float = 5.0) -> None:
        """End the server and with it whatever is left of its workers. Safe to call again."""
        try:
            with contextlib.suppress(OSError):
                self._line.hang_up()
            self._listen_until(_never, 0.0)
            # One that has not served yet is importing, and would not notice.
            self._listen_until(_never, timeout_s if self._has_served else 0.0)
        finally:
            self._end()

    def _end(self) -> None:
        if self._process is None:
            self._listen_until(lambda: self._is_here, _GRACE_S)
        if not self._is_over(_GRACE_S if self._has_served else 0.0):
            self._insist()
            self._is_over(_GRACE_S)
        self._line.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        Zygote.release(self)

    def _is_over(self, timeout_s: float) -> bool:
        """Whether the process has ended, or cannot be known any more."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
            return self._process.returncode is not None
        return self._pidfd is None or is_ready(self._pidfd, select.POLLIN, timeout_s)

    def _insist(self) -> None:
        if self._process is not None:
            self._process.kill()
        elif self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _listen_until(self, satisfied: Callable[[], bool], timeout_s: float) -> str:
        """Take reports until one satisfies, the server has ended, or the time is up."""
        deadline = time.monotonic() + timeout_s
        try:
            while not satisfied():
                if not self._line.wait(deadline - time.monotonic()):
                    return "waiting"
                if (received := self._line.receive()) is not None:
                    self._note(*received)
        except (EOFError, OSError):
            return "ended"
        return "satisfied"

    def _note(self, message: Any, fds: list[int]) -> None:
        what, *rest = message
        if what == "here":
            self._is_here, self._pidfd = True, fds.pop() if fds else None
        elif what == "started":
            key, pid = rest
            self._has_served = True
            if key in self._exits:
                self._started[key] = pid, fds.pop() if fds else None
        else:
            key, status, last_words = rest
            if key in self._exits:
                self._exits[key] = status, last_words
        for fd in fds:
            os.close(fd)


def _never() -> bool:
    return False


def _start_server(control_fd: int) -> subprocess.Popen[bytes]:
    """A server that is an interpreter of its own, where there is no fork."""
    code = f"from shoal.engine.server import main; main({control_fd}, {os.getpid()})"
    environment = os.environ | ONE_THREAD
    return start_interpreter(code, [control_fd], env=environment, start_new_session=True)


@dataclass(frozen=True, slots=True)
class _Surroundings:
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


def _surroundings() -> _Surroundings:
    environment = dict(os.environ) | ONE_THREAD
    return _Surroundings(sys.path, os.getcwd(), environment, os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class _Hello:
    """What a server is told before anything else."""

    preload: tuple[str, ...]
    fork: bool
    surroundings: _Surroundings | None


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    streams: list[Stream]


class _Nursery:
    """The server itself: one thread, one loop over orders, output and deaths."""

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

    def _meet(self) -> _Hello:
        received = self._line.receive()
        if received is None:
            raise EOFError
        (letter,) = received[1]
        hello: _Hello = pickle.loads(os.pread(letter, os.fstat(letter).st_size, 0))
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
    nursery = _Nursery(Line(socket.socket(fileno=control_fd)), parent_pid)
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
