"""A simulator behind a socket: an environment whose steps are taken by a process of its own.

    env ── how long ──► server (benchmarks/echo.py), which sleeps so long
        ◄── the same ──

The environment's end is closed when its process dies, whatever of; then the server ends by itself.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks import echo

MEAN_S = 1e-3
EPISODE_STEPS = 1000
_END_TIMEOUT_S = 10.0


class Remote(gymnasium.Env[Any, Any]):
    """Waits for its simulator at each step, exponentially long, and does next to nothing itself."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._observation = np.zeros(4, np.float32)
        self._left = EPISODE_STEPS
        self.connection, theirs = socket.socketpair()
        with theirs:
            self.server = subprocess.Popen(
                [sys.executable, "-I", "-S", echo.__file__], stdin=theirs
            )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = EPISODE_STEPS
        return self._observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        request = echo.DELAY.pack(self.np_random.exponential(MEAN_S))
        answer = self._ask(request)
        if answer != request:
            raise ConnectionError(
                f"the simulator has ended (pid {self.server.pid}): expected {len(request)} bytes, "
                f"got {len(answer)}. Make the environment anew."
            )
        self._left -= 1
        return self._observation, 0.0, False, self._left <= 0, {}

    def _ask(self, request: bytes) -> bytes:
        try:
            self.connection.sendall(request)
            return self.connection.recv(len(request), socket.MSG_WAITALL)
        except ConnectionError:
            return b""

    def close(self) -> None:
        """Also where a forked process still has a copy of the socket: the connection is ended."""
        if self.connection.fileno() < 0:
            return
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # the server is gone already
            pass
        self.connection.close()
        try:
            self.server.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()
