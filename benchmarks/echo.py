"""The server of `benchmarks/simulator.py`: answers each request after as long as it asks for.

A program of its own that needs the standard library only, so that many start quickly. It ends when
nobody is left to ask.
"""

from __future__ import annotations

import os
import signal
import struct
import time

DELAY = struct.Struct("d")
"""A request, in seconds; the answer is the same bytes."""


def serve(connection: int) -> None:
    """Until the other end is closed, or was torn away."""
    try:
        while len(request := os.read(connection, DELAY.size)) == DELAY.size:
            (delay_s,) = DELAY.unpack(request)
            time.sleep(delay_s)
            os.write(connection, request)
    except OSError:
        pass


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    serve(0)
