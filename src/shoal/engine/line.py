"""Lines: whole messages, with descriptors, between two processes.

A message goes with one system call and is taken with one. Whoever is interrupted between two of
them has lost a message whole or not at all; the next one is where it should be.
"""

from __future__ import annotations

import array
import pickle
import select
import socket
from collections.abc import Sequence
from typing import Any

_SIZE_BYTES = 4
_ROOM_BYTES = 1 << 18
_MOST_FDS = 3
_CLOEXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Line:
    """One end. Neither sending nor receiving waits for the other side."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM_BYTES)
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Line, socket.socket]:
        """The end of this process, and what the other side makes its own of."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Any, fds: Sequence[int] = ()) -> None:
        """Send a message of less than 32 KB; BlockingIOError where there is no room for it."""
        payload = pickle.dumps(message)
        data = len(payload).to_bytes(_SIZE_BYTES, "little") + payload
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        if self._socket.sendmsg([data], rights) < len(data):
            raise OSError("half a message was sent: nobody can read the next one")

    def wait(self, timeout_s: float) -> bool:
        """Whether there is something to receive, the end of the line included."""
        if self._socket.fileno() < 0:
            raise EOFError
        return is_ready(self._socket.fileno(), select.POLLIN, timeout_s)

    def receive(self) -> tuple[Any, list[int]] | None:
        """The next message and its descriptors, if there is one; EOFError at the end."""
        try:
            head = self._socket.recv(_SIZE_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        if not head:
            raise EOFError
        size = _SIZE_BYTES + int.from_bytes(head, "little")
        data, fds, _, _ = socket.recv_fds(self._socket, size, _MOST_FDS, _CLOEXEC)
        return pickle.loads(data[_SIZE_BYTES:]), fds

    def hang_up(self) -> None:
        """Nothing more will be sent; the other side is told, and may still answer."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


def is_ready(fd: int, event: int, timeout_s: float) -> bool:
    """Wait until a descriptor is ready for this (or has failed), at most so long."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(max(0.0, timeout_s) * 1000.0))
