"""The zygote: one interpreter that has imported what every worker needs; servers are its forks.

It is started with the first pool of a process and ends with the last, so that pools made beside
each other do not import NumPy and Gymnasium again. It never imports anything of the user's: each
pool's server does that for itself, with the caller's variables, paths and output of that moment.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import weakref
from typing import Any, ClassVar, NoReturn

from shoal.engine.launch import ONE_THREAD
from shoal.engine.line import Line

_WATCH_PARENT_S = 0.5


def start_interpreter(code: str, fds: list[int], **kwargs: Any) -> subprocess.Popen[bytes]:
    """A fresh interpreter with this one's flags and path, which never sees the user's script."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    program = f"import sys; sys.path[:] = {sys.path!r}; {code}"
    return subprocess.Popen(
        [sys.executable, *flags, "-c", program],
        stdin=subprocess.DEVNULL,
        pass_fds=fds,
        **kwargs,
    )


class Zygote:
    """The caller's handle. `lease` it, have it fork servers, `release` it.

    It is told what to do and never answers: nobody can be interrupted while he waits for it, and
    its end shows where a server is waited for.
    """

    _guard = threading.RLock()  # a finalizer may release one lease while another is taken
    _running: ClassVar[list[Zygote]] = []
    """More than one only where one has died, or is that of the process this one was forked from."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._holders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._process: subprocess.Popen[bytes] | None = None
        self._line, theirs = Line.pair()
        code = f"from shoal.engine.zygote import main; main({theirs.fileno()}, {self._pid})"
        try:
            with theirs:
                self._process = start_interpreter(
                    code, [theirs.fileno()], env=os.environ | ONE_THREAD, start_new_session=True
                )
        except BaseException:
            self._end()
            raise

    @classmethod
    def lease(cls, holder: object) -> Zygote:
        """The zygote of this process, started if there is none."""
        with cls._guard:
            if not cls._running or not cls._running[-1]._is_fit():
                cls._running.append(cls())
            zygote = cls._running[-1]
            zygote._holders.add(holder)
            return zygote

    @classmethod
    def release(cls, holder: object) -> None:
        """Give a lease back, if it was given; the last one ends the zygote."""
        with cls._guard:
            for zygote in list(cls._running):
                zygote._holders.discard(holder)
                if zygote._pid == os.getpid() and not zygote._holders:
                    zygote._end()
                    cls._running.remove(zygote)

    def _is_fit(self) -> bool:
        """Whether it is this process's own and lives: it never says anything but its end."""
        return self._pid == os.getpid() and not self._line.wait(0.0)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()  # it has nothing of its own to close
            self._process.wait()
        self._line.close()

    def fork_server(self, control_fd: int) -> None:
        """Fork a server that takes its orders from this descriptor."""
        with open(os.devnull, "wb") as nowhere:  # where a standard stream is closed
            outputs = [fd if _is_open(fd) else nowhere.fileno() for fd in (1, 2)]
            with contextlib.suppress(OSError):  # whoever waits for the server notices
                self._line.send("fork", [control_fd, *outputs])


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def main(control_fd: int, parent_pid: int) -> None:
    """The zygote's program: fork servers until the caller lets go or is gone."""
    # What all its forks will need.
    from shoal.engine import nursery  # noqa: F401
    from shoal.engine.backends.process import inside  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # servers are not waited for
    os.set_inheritable(control_fd, False)
    line = Line(socket.socket(fileno=control_fd))
    with selectors.DefaultSelector() as selector, contextlib.suppress(EOFError, OSError):
        selector.register(line, selectors.EVENT_READ)
        while os.getppid() == parent_pid:
            if selector.select(_WATCH_PARENT_S) and (fds := line.drop()):
                _fork_server(line, fds)
    line.close()


def _fork_server(line: Line, fds: list[int]) -> None:
    parent_pid = os.getpid()
    if os.fork() == 0:
        line.close()
        _become_server(fds, parent_pid)
    for fd in fds:
        os.close(fd)


def _become_server(fds: list[int], parent_pid: int) -> NoReturn:
    from shoal.engine import nursery

    code = 1
    try:
        os.setsid()
        control_fd, *outputs = fds
        for target, fd in enumerate(outputs, start=1):
            os.dup2(fd, target)
            os.close(fd)
        nursery.main(control_fd, parent_pid)
        code = 0
    finally:
        os._exit(code)
