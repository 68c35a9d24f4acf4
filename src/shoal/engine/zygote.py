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
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from shoal.engine.launch import ONE_THREAD

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
    """The caller's handle. `lease` it, have it fork servers, `release` it."""

    _guard = threading.RLock()  # a finalizer may release one lease while another is taken
    _shared: Zygote | None = None

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        self._control = Connection(os.dup(self._socket.fileno()))
        self._pid, self._leases = os.getpid(), 0
        code = f"from shoal.engine.zygote import main; main({theirs.fileno()}, {os.getpid()})"
        environment = os.environ | ONE_THREAD
        fds = [theirs.fileno()]
        self._process = start_interpreter(code, fds, env=environment, start_new_session=True)
        theirs.close()

    @classmethod
    def lease(cls) -> Zygote:
        """The zygote of this process, started if there is none."""
        with cls._guard:
            shared = cls._shared
            if shared is None or shared._pid != os.getpid() or shared._process.poll() is not None:
                shared = cls._shared = cls()
            shared._leases += 1
            return shared

    def release(self) -> None:
        """Give the lease back; the last one ends the zygote."""
        with self._guard:
            self._leases -= 1
            if self._leases:
                return
            if Zygote._shared is self:
                Zygote._shared = None
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # forks of this process may hold it open
        self._control.close()
        self._socket.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def fork_server(self, control_fd: int) -> int:
        """Fork a server that takes its orders from this descriptor; its pid."""
        surroundings = {
            "path": sys.path,
            "folder": os.getcwd(),
            "environment": dict(os.environ) | ONE_THREAD,
            "cores": sorted(os.sched_getaffinity(0)),
        }
        nowhere = os.open(os.devnull, os.O_WRONLY)  # where a standard stream is closed
        outputs = [fd if _is_open(fd) else nowhere for fd in (1, 2)]
        try:
            with self._guard:
                self._control.send(surroundings)
                socket.send_fds(self._socket, [b"."], [control_fd, *outputs])
                pid: int = self._control.recv()
        finally:
            os.close(nowhere)
        return pid


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def main(control_fd: int, parent_pid: int) -> None:
    """The zygote's program: fork servers until the caller lets go or is gone."""
    from shoal.engine.backends.process import inside  # noqa: F401  what all its forks will need

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # servers are not waited for
    os.set_inheritable(control_fd, False)
    control = Connection(control_fd)
    with selectors.DefaultSelector() as selector, contextlib.suppress(EOFError, OSError):
        selector.register(control, selectors.EVENT_READ)
        while os.getppid() == parent_pid:
            if selector.select(_WATCH_PARENT_S):
                _fork_server(control, control.recv())
    control.close()


def _fork_server(control: Connection, surroundings: dict[str, Any]) -> None:
    with socket.socket(fileno=os.dup(control.fileno())) as carrier:
        _, fds, _, _ = socket.recv_fds(carrier, 1, 3)
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        control.close()
        _become_server(surroundings, fds, parent_pid)
    for fd in fds:
        os.close(fd)
    control.send(pid)


def _become_server(surroundings: dict[str, Any], fds: list[int], parent_pid: int) -> NoReturn:
    from shoal.engine import server

    code = 1
    try:
        os.setsid()
        control_fd, *outputs = fds
        for target, fd in enumerate(outputs, start=1):
            os.dup2(fd, target)
            os.close(fd)
        sys.path[:] = surroundings["path"]
        with contextlib.suppress(OSError):
            os.chdir(surroundings["folder"])
        os.environ.clear()
        os.environ.update(surroundings["environment"])
        os.sched_setaffinity(0, surroundings["cores"])
        server.main(control_fd, parent_pid)
        code = 0
    finally:
        os._exit(code)
