"""What workers print, on its way through the server: line by line, with the worker's number.

Whoever reads it in the end may pause for as long as he likes (`| less`, Ctrl-S). The server never
waits for him: what finds no room is kept up to a limit, then dropped and counted.
"""

from __future__ import annotations

import os
import select
import selectors
import stat
import time
from collections import deque
from collections.abc import Iterable

from shoal.engine.line import is_ready

_LINE_LIMIT_BYTES = 1 << 16
_MOST_WAITING_BYTES = 1 << 20
_MOST_LAST_READS = 16
"""More than a pipe holds: who still writes into that of a dead worker is not waited for."""
_TAIL_LINES = 60
_TAIL_BYTES = 8192
"""Last words are cut, so that reporting them never has to wait for a reader."""


class Target:
    """A descriptor that lines go to."""

    def __init__(self, fd: int, selector: selectors.BaseSelector) -> None:
        self.fd, self._selector = _own(fd), selector
        self._waiting, self._num_dropped = bytearray(), 0
        self._is_watched = False

    def put(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if self._num_dropped or len(self._waiting) + len(line) > _MOST_WAITING_BYTES:
                self._num_dropped += 1
            else:
                self._waiting += line
        self.flush()

    def flush(self) -> None:
        """Write what finds room now; the selector tells when there is more."""
        while self._waiting or self._num_dropped:
            if not self._waiting:
                self._tell_dropped()
            if not is_ready(self.fd, select.POLLOUT, 0.0):
                break
            try:
                del self._waiting[: os.write(self.fd, self._waiting[: self._next_bytes()])]
            except BlockingIOError:
                break
            except OSError:  # nobody will ever read it
                self._waiting.clear()
                self._num_dropped = 0
        self._watch(bool(self._waiting))

    def _next_bytes(self) -> int:
        """Whole lines, as many as a pipe with room takes at once and without mixing them."""
        return self._waiting.rfind(b"\n", 0, select.PIPE_BUF) + 1 or select.PIPE_BUF

    def _tell_dropped(self) -> None:
        text = f"[shoal] {self._num_dropped} lines of workers were dropped: nobody read them\n"
        self._waiting += text.encode()
        self._num_dropped = 0

    def _watch(self, wanted: bool) -> None:
        if wanted and not self._is_watched:
            self._selector.register(self.fd, selectors.EVENT_WRITE, lambda _: self.flush())
        elif self._is_watched and not wanted:
            self._selector.unregister(self.fd)
        self._is_watched = wanted

    def drain(self, deadline: float) -> None:
        """Write all that is left, as far as it is read in time."""
        while self._waiting and (left_s := deadline - time.monotonic()) > 0.0:
            if is_ready(self.fd, select.POLLOUT, left_s):
                self.flush()


def _own(fd: int) -> int:
    """The same pipe or terminal, opened once more.

    That a write must not block is then said of our descriptor only: those that were inherited share
    this flag with the user's own. Where it cannot be opened, small writes when there is room do.
    """
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd  # never blocks, and a second one would write over what the first has written
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return fd


class Stream:
    """One stream of one worker."""

    def __init__(self, fd: int, number: int, target: Target) -> None:
        os.set_blocking(fd, False)
        self.fd, self._target = fd, target
        self._prefix, self._rest = f"[worker {number}] ".encode(), b""
        self._tail: deque[bytes] = deque(maxlen=_TAIL_LINES)

    def pump(self) -> int | None:
        """Pass on what is there; how much that was, and None at the end of the stream."""
        try:
            data = os.read(self.fd, _LINE_LIMIT_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_LIMIT_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        self._pass_on(lines)
        return len(data)

    def finish(self) -> None:
        """Pass on all that is left and close."""
        for _ in range(_MOST_LAST_READS):
            if not self.pump():
                break
        if self._rest:
            self._pass_on([self._rest])
        os.close(self.fd)

    def _pass_on(self, lines: list[bytes]) -> None:
        self._tail.extend(lines)
        self._target.put(self._prefix + line + b"\n" for line in lines)

    def last_words(self) -> str:
        return b"\n".join(self._tail)[-_TAIL_BYTES:].decode(errors="replace")
