"""The caller's side of the process backend: one worker process, its signals and its end."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import signal
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from shoal.engine.backends import Terms
from shoal.engine.backends.process.header import (
    BUSY_NS,
    END,
    HAS_REPLY,
    MESSAGE,
    OP,
    SLOT,
    STEP_ALL,
    STEP_SOME,
    Header,
)
from shoal.engine.backends.process.inside import Order, dump
from shoal.engine.commands import (
    MARK_ENV,
    MARK_PHASE,
    MARK_SINCE_NS,
    PHASES,
    Assignment,
    Built,
    Command,
    Failure,
    Reply,
    Step,
)
from shoal.engine.launch import describe_exit
from shoal.engine.machine import is_portable
from shoal.engine.server import Server
from shoal.engine.signals import Semaphore
from shoal.errors import WorkerDied, WorkerTimeout

PARK_S = 0.02
"""How long a wait sleeps before it looks whether the other side still lives."""


class Child:
    """A process that a server started."""

    def __init__(self, server: Server, pid: int, pidfd: int | None) -> None:
        self.pid, self._server, self._pidfd = pid, server, pidfd
        if pidfd is not None:
            self._poll = select.poll()
            self._poll.register(pidfd, select.POLLIN)

    def is_alive(self) -> bool:
        if self._pidfd is not None:
            return not self._poll.poll(0)
        return not self._server.has_exited(self.pid)

    def kill(self) -> None:
        self._server.kill(self.pid)

    def outcome(self) -> tuple[int | None, str]:
        """How it ended (a wait status), and its last words."""
        return self._server.exit_of(self.pid)

    def close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


class ForkedChild:
    """A fork of the caller."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def is_alive(self) -> bool:
        if self._status is None:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return True
            self.kill()  # its children, while its number is still taken
            self._status = os.waitpid(self.pid, 0)[1]
        return False

    def kill(self) -> None:
        if self._status is None:
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)

    def outcome(self) -> tuple[int | None, str]:
        deadline = time.monotonic() + 2.0
        while self.is_alive() and time.monotonic() < deadline:
            time.sleep(0.001)
        return self._status, ""

    def close(self) -> None:
        pass


class ProcessWorker:
    """The caller's end of a worker process."""

    def __init__(
        self,
        assignment: Assignment,
        terms: Terms,
        header: Header,
        pipe: Connection,
        child: Child | ForkedChild,
    ) -> None:
        self.number = assignment.worker
        self.pid: int | None = child.pid
        self._terms, self._header, self._pipe, self._child = terms, header, pipe, child
        self._words = header.words(self.number)
        self._env_ids: tuple[int, ...] = ()
        self._spin_s = 0.0
        self._deadline = time.monotonic() + terms.start_timeout_s
        self._is_ready = False
        self._semaphores: list[Semaphore] = []
        self._words[MARK_PHASE] = PHASES.index("start")
        self._go: Semaphore
        self._done: Semaphore

    def introduce(self, order: Order) -> None:
        """Tell it what to build."""
        with contextlib.suppress(OSError):  # a death is noticed by whoever waits for the answer
            self._pipe.send_bytes(dump(order))

    def built(self) -> Built:
        built: Built = self._expect("built")
        self._env_ids = tuple(built.block)
        return built

    def prepare(self, order: dict[str, Any], bell_name: str | None, spin_s: float) -> None:
        """Make the semaphores and tell the worker where they and its rows are."""
        places = [self._header.place(self.number, k) for k in (0, 1)]
        portable = is_portable()
        for place in places:
            self._semaphores.append(Semaphore.create(None if portable else place))
        self._go, self._done = self._semaphores
        self._spin_s = spin_s
        names = (self._go.name, self._done.name, bell_name) if portable else ()
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(cloudpickle.dumps({**order, "names": names}))

    def attach(self) -> None:
        """Wait until the worker has its rows and signals."""
        self._expect("attached")
        self._is_ready = True

    def unlink(self) -> None:
        """Take the names of its semaphores away, if they have any."""
        for semaphore in self._semaphores:
            semaphore.unlink()

    def put(self, command: Command) -> None:
        words = self._words
        if type(command) is Step and command.is_light:
            words[SLOT] = command.slot
            words[OP] = STEP_ALL if command.everyone else STEP_SOME
            self._go.release()
            return
        payload = cloudpickle.dumps(command, protocol=5)
        words[OP] = MESSAGE
        self._go.release()
        with contextlib.suppress(OSError):  # a death is noticed by whoever waits for the answer
            self._pipe.send_bytes(payload)

    def wait(self, timeout_s: float | None = None) -> bool:
        done = self._done
        if timeout_s == 0.0:
            return done.acquire(False) or self._check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if done.wait(self._spin_s, 0.0):
            return True
        while True:
            left = PARK_S if deadline is None else min(PARK_S, deadline - time.monotonic())
            if done.acquire(True, max(left, 0.0)):
                return True
            if self._check():
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def _check(self) -> bool:
        """Raise if this worker will never answer; True if it did so at the last moment."""
        if not self._child.is_alive():
            if self._done.acquire(False):
                return True
            raise self.death()
        limit_s = self._terms.step_timeout_s
        if limit_s is not None and self._words[MARK_PHASE] in (
            PHASES.index("reset"),
            PHASES.index("step"),
        ):
            taken_s = (time.monotonic_ns() - self._words[MARK_SINCE_NS]) / 1e9
            if taken_s > limit_s:
                raise self._hang(taken_s, limit_s)
        return False

    def take(self) -> Reply | None:
        if not self._words[HAS_REPLY]:
            return None
        reply: Reply = pickle.loads(self._receive())
        for record in reply.logs:
            _relog(record)
        return reply

    def busy_ns(self) -> int:
        return int(self._words[BUSY_NS])

    def local_envs(self) -> list[Any]:
        return []

    def end(self) -> None:
        if self._is_ready and self._child.is_alive():
            self._words[OP] = END
            self._go.release()
        elif not self._is_ready:
            self._pipe.close()  # which it takes for the end

    def close(self, deadline: float) -> list[Failure]:
        try:
            failures = self._last_words(deadline) if self._is_ready else []
            while self._child.is_alive() and time.monotonic() < deadline:
                time.sleep(0.0005)
            return failures
        finally:
            self._child.kill()
            self._child.outcome()
            self._child.close()
            self._pipe.close()

    def _last_words(self, deadline: float) -> list[Failure]:
        """What `env.close()` raised; before that, perhaps, a reply that nobody waited for."""
        with contextlib.suppress(OSError, EOFError):
            while self._pipe.poll(max(0.0, deadline - time.monotonic())):
                message = pickle.loads(self._pipe.recv_bytes())
                if isinstance(message, list):
                    return message
        return []

    def death(self) -> WorkerDied:
        """The error that says how this worker ended and at what."""
        status, tail = self._child.outcome()
        env_id, phase = self._at()
        text = (
            f"worker {self.number} (pid {self.pid}) {describe_exit(status)} "
            f"{'while idle' if phase == 'idle' else f'in {phase} of env {env_id}'}. "
            f"Lost with it: {_listed(self._env_ids or (env_id,))}."
        )
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            text += " A SIGKILL that nobody sent is usually the system running out of memory."
        text += " Close these environments and make new ones."
        if tail:
            text += f" Its last words were:\n{tail}"
        return WorkerDied(
            text, worker=self.number, env_ids=self._env_ids or (env_id,), phase=phase, pid=self.pid
        )

    def _hang(self, taken_s: float, limit_s: float) -> WorkerTimeout:
        env_id, phase = self._at()
        self._child.kill()
        self._child.outcome()
        return WorkerTimeout(
            f"env {env_id} has been in {phase} for {taken_s:.2f} s; step_timeout_s is {limit_s}. "
            f"Its worker {self.number} (pid {self.pid}) was killed, and with it "
            f"{_listed(self._env_ids)}.",
            worker=self.number,
            env_ids=self._env_ids,
            phase=phase,
            pid=self.pid,
        )

    def _at(self) -> tuple[int, str]:
        return int(self._words[MARK_ENV]), PHASES[self._words[MARK_PHASE]]

    def _expect(self, kind: str) -> Any:
        """The next message of the start-up; raises what went wrong instead."""
        got, content, records = pickle.loads(self._receive(self._deadline))
        for record in records:
            _relog(record)
        if got == "failed":
            raise content.as_error(self.number, self.pid)
        assert got == kind
        return content

    def _receive(self, deadline: float | None = None) -> bytes:
        try:
            while not self._pipe.poll(PARK_S):
                if not self._child.is_alive() and not self._pipe.poll(0):
                    raise self.death()
                if deadline is not None and time.monotonic() > deadline:
                    self._child.kill()
                    raise WorkerTimeout(
                        f"worker {self.number} (pid {self.pid}) was still at "
                        f"{self._at()[1]} of env {self._at()[0]} after "
                        f"{self._terms.start_timeout_s} s and was killed. Raise "
                        "start_timeout_s if its environments need longer to start.",
                        worker=self.number,
                        env_ids=self._env_ids,
                        phase=self._at()[1],
                        pid=self.pid,
                    )
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise self.death() from None


def _relog(record: logging.LogRecord) -> None:
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _listed(env_ids: Sequence[int]) -> str:
    if len(env_ids) == 1:
        return f"env {env_ids[0]}"
    return f"envs {env_ids[0]} to {env_ids[-1]}"
