"""The process that workers come from: the caller's handle on it.

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
import itertools
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from shoal.engine.launch import ONE_THREAD
from shoal.engine.line import Line, is_ready
from shoal.engine.machine import is_portable
from shoal.engine.memory import Memory
from shoal.engine.nursery import Hello, Surroundings
from shoal.engine.zygote import Zygote, start_interpreter
from shoal.errors import WorkerDied, WorkerError, WorkerTimeout

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
        hello = Hello(tuple(preload), fork, None if is_portable() else _surroundings())
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
    code = f"from shoal.engine.nursery import main; main({control_fd}, {os.getpid()})"
    environment = os.environ | ONE_THREAD
    return start_interpreter(code, [control_fd], env=environment, start_new_session=True)


def _surroundings() -> Surroundings:
    environment = dict(os.environ) | ONE_THREAD
    return Surroundings(sys.path, os.getcwd(), environment, os.sched_getaffinity(0))
