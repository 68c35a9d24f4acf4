"""The caller's side of the process backend: one worker process, its signals and its end."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import platform
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from shoal.engine.backends import CLOSE_TIMEOUT_S, Terms
from shoal.engine.backends.process.header import (
    AHEAD,
    ANSWER,
    BUSY_NS,
    COMMAND,
    END,
    HAS_ENDED,
    HAS_REPLY,
    MESSAGE,
    RESIDENT_KB,
    STEP_ALL,
    STEP_SOME,
    Header,
    number_asked,
)
from shoal.engine.backends.process.inside import (
    AttachMessage,
    BuildMessage,
    Order,
    carried_error,
    dump,
)
from shoal.engine.commands import (
    MARK_ENV,
    MARK_PHASE,
    MARK_SINCE_NS,
    NOBODY,
    PHASES,
    Assignment,
    Attach,
    Build,
    Command,
    Factory,
    Failure,
    Place,
    Release,
    Reply,
    Step,
    place_of,
)
from shoal.engine.launch import describe_exit
from shoal.engine.machine import is_portable
from shoal.engine.parcel import Parcel
from shoal.engine.server import Exit, Server
from shoal.engine.signals import Semaphore, Spin
from shoal.errors import ContractError, WorkerDied, WorkerTimeout, shown

PARK_S = 0.02
"""How long a wait sleeps before it looks whether the other side still lives."""


class Child:
    """A process that a server starts. Its descriptor goes with this object."""

    _pidfd: int | None = None

    def __init__(self, server: Server, number: int, fds: Sequence[int], deadline: float) -> None:
        self._server, self._poll = server, select.poll()
        self._exit: Exit | None = None
        self._key, self.pid, self._pidfd = server.start(number, fds, deadline)
        if self._pidfd is not None:
            self._poll.register(self._pidfd, select.POLLIN)

    def is_alive(self) -> bool:
        if self._pidfd is not None:
            return not self._poll.poll(0)
        return self._learn_exit(0.0) is None

    def kill(self) -> None:
        if self._pidfd is not None:  # a server that is stopped or dead must not keep it alive
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._server.kill(self._key)  # and its children with it

    def outcome(self) -> Exit:
        """How it ended (a wait status), and its last words."""
        return self._learn_exit(2.0) or (None, "")

    def _learn_exit(self, timeout_s: float) -> Exit | None:
        if self._exit is None:
            self._exit = self._server.exit_of(self._key, timeout_s)
        return self._exit

    def close(self) -> None:
        if self._pidfd is not None:
            pidfd, self._pidfd = self._pidfd, None
            os.close(pidfd)

    __del__ = close


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


class WorkerSignals:
    """The semaphores and words of one worker process, made for it alone."""

    def __init__(self, header: Header, block: int, spin: Spin) -> None:
        header.clear(block)
        portable = is_portable()
        places = [None if portable else header.place(block, k) for k in (0, 1)]
        self.go, self.done = (Semaphore.create(place) for place in places)
        self.words, self.spin = header.words(block), spin
        self.words[MARK_PHASE], self.words[MARK_ENV] = PHASES.index("start"), NOBODY

    def announce(self) -> None:
        """There is a first command, which need not travel; said before anyone can answer it."""
        self.words[COMMAND] = _next(0, MESSAGE)

    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in (self.go, self.done) if one.name is not None)

    def unlink(self) -> None:
        """Take the names away, if there are any."""
        self.go.unlink()
        self.done.unlink()


class ProcessWorker:
    """The caller's end of a worker process. From its start on it is busy with its first `Build`."""

    is_caller = False
    takes_ahead = platform.machine() in ("x86_64", "AMD64")
    """A worker may find what was put ahead before it was told; elsewhere that is no barrier."""

    def __init__(
        self,
        assignment: Assignment,
        terms: Terms,
        signals: WorkerSignals,
        pipe: Connection,
        child: Child | ForkedChild,
        pack: Callable[[Sequence[Factory]], Parcel],
    ) -> None:
        self.number = assignment.worker
        self.pid: int | None = child.pid
        self._terms, self._signals, self._pipe, self._child = terms, signals, pipe, child
        self._pack = pack
        self._go, self._done, self._words = signals.go, signals.done, signals.words
        self._spin = signals.spin
        self._release, self._acquire = signals.go.release, signals.done.acquire
        self._env_ids = tuple(assignment.ids())
        self._deadline: float | None = time.monotonic() + terms.start_timeout_s
        self._taken = 0
        """The command whose reply was taken last."""
        self._reply: Reply | None = None
        self._prepared: tuple[Command | None, bytes] = None, b""

    def introduce(self, order: Order) -> None:
        """Tell it how it is to work."""
        with contextlib.suppress(
            ConnectionError
        ):  # a death is noticed by whoever waits for the answer
            self._pipe.send_bytes(dump(order))

    def prepare(self, command: Command) -> None:
        if type(command) in (Build, Attach):
            return
        try:
            self._prepared = command, cloudpickle.dumps(command, protocol=5)
        except Exception as problem:
            for env_id, action in ((type(command) is Step and command.objects) or {}).items():
                _check_action(env_id, action, problem)
            raise

    def put(self, command: Command) -> None:
        if type(command) is Step and command.is_light:
            kind = STEP_ALL if command.everyone else STEP_SOME
            self._words[COMMAND] = _next(self._words[COMMAND], kind + command.slot)
            self._go.release()
        elif type(command) is Build:
            self.put_build(command, self._pack(command.assignment.factories))
        elif type(command) is Attach:
            self._put_attach(command)
        else:
            if type(command) is Release:
                told = set(command.env_ids)
                kept = (i for i in self._env_ids if (i in told) is command.others)
                self._env_ids = tuple(kept)
            if self._prepared[0] is not command:
                self.prepare(command)
            self._send(self._prepared[1])
            self._prepared = None, b""

    def put_build(self, command: Build, factories: Parcel) -> None:
        """`put`, where the factories are packed already."""
        self._deadline = time.monotonic() + self._terms.start_timeout_s
        bare = Build(replace(command.assignment, factories=()))
        self._send(dump(BuildMessage(bare, factories)))

    def _put_attach(self, command: Attach) -> None:
        rows = command.rows
        assert rows.memory is not None
        self._deadline = time.monotonic() + self._terms.start_timeout_s
        payload = cloudpickle.dumps(AttachMessage(rows.shape, tuple(command.columns)), protocol=5)
        with _socket_of(self._pipe) as carrier:  # which may be refused, so before anything is sent
            self._send(payload)
            with contextlib.suppress(ConnectionError):
                socket.send_fds(carrier, [b"."], [rows.memory.fd])

    def _send(self, payload: bytes) -> None:
        self._words[COMMAND] = _next(self._words[COMMAND], MESSAGE)
        self._go.release()
        with contextlib.suppress(
            ConnectionError
        ):  # a death is noticed by whoever waits for the answer
            self._pipe.send_bytes(payload)

    def break_off(self) -> bool:
        if number_asked(self._words) == self._taken:
            return False
        if self._words[COMMAND] & 7 == MESSAGE:
            self._child.kill()  # half a message may be on its way: there is no other way back
        else:
            self._go.release()
        return True

    def put_ahead(self, command: Step) -> None:
        self._words[AHEAD] = _next(self._words[COMMAND], STEP_SOME + command.slot)
        self._go.release()

    def is_put_ahead(self) -> bool:
        if self._words[AHEAD] >> 3 <= number_asked(self._words):
            return False
        self._go.release()  # it may not have been told
        return True

    def go_on(self) -> None:
        self._words[COMMAND] = max(self._words[COMMAND], self._words[AHEAD])

    def call_back(self) -> None:
        self._words[AHEAD] = 0

    def wait(self, timeout_s: float | None = None) -> bool:
        done = self._done
        if self.has_answered():
            if self._taken != number_asked(self._words):
                done.acquire(True, PARK_S)  # its signal is on the way, unless it has gone already
            return True
        if timeout_s == 0.0:
            return self._check()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if done.wait(self._spin, 0.0) and self.has_answered():
            return True
        while True:
            left = PARK_S if deadline is None else min(PARK_S, deadline - time.monotonic())
            if done.acquire(True, max(left, 0.0)) and self.has_answered():
                return True
            if self._check():
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False

    def has_answered(self) -> bool:
        words = self._words
        return bool(words[ANSWER] >> 2 >= words[COMMAND] >> 3)  # more, if it has gone on

    def take_quietly(self) -> bool:
        number, said = self._words[COMMAND] >> 3, self._words[ANSWER]
        is_quiet = said >> 2 > number or (said >> 2 == number and not said & HAS_REPLY)
        if not is_quiet or not self._acquire(False):
            return False
        self._reply, self._taken = None, number
        return True

    def is_idle(self) -> bool:
        words = self._words
        return bool(words[ANSWER] >> 2 >= max(words[COMMAND], words[AHEAD]) >> 3)

    def _check(self) -> bool:
        """Raise if this worker will never answer; True if it did so at the last moment."""
        if not self._child.is_alive():
            if self.has_answered():
                return True
            raise self.death()
        phase = self._words[MARK_PHASE]
        if phase in _STARTING:
            if self._deadline is not None and time.monotonic() > self._deadline:
                raise self._late()
        elif phase in _LIMITED and self._terms.step_timeout_s is not None:
            taken_s = (time.monotonic_ns() - self._words[MARK_SINCE_NS]) / 1e9
            if taken_s > self._terms.step_timeout_s:
                raise self._hang(taken_s, f"step_timeout_s is {self._terms.step_timeout_s}")
        elif phase == _CLOSING:
            taken_s = (time.monotonic_ns() - self._words[MARK_SINCE_NS]) / 1e9
            if taken_s > CLOSE_TIMEOUT_S:
                raise self._hang(taken_s, f"it may take {CLOSE_TIMEOUT_S} s to close")
        return False

    def take(self) -> Reply | None:
        number = number_asked(self._words)
        if self._taken != number:
            said = self._words[ANSWER]
            if said & HAS_REPLY and said >> 2 == number:
                self._read(number)
            else:
                self._reply, self._taken = None, number
        return self._reply

    def _read(self, number: int) -> None:
        try:
            reply = self._unpacked(self._receive())
            if reply.built is not None:
                self._signals.unlink()
                self._env_ids = tuple(sorted({*self._env_ids, *reply.built.env_ids}))
            for record in reply.logs:
                _relog(record)
            self._reply, self._taken = reply, number  # both or none, even for Ctrl-C
        except Exception:
            self._taken = number  # whatever it was, it has been read
            raise
        except BaseException:
            self._child.kill()  # Ctrl-C: part of the reply may be lost, and with it who gave it
            raise

    def _unpacked(self, payload: bytes) -> Reply:
        try:
            reply: Reply = pickle.loads(payload)
        except Exception as problem:
            problem.add_note(
                f"So worker {self.number} answered with something that this process cannot read. "
                "Return plain values and arrays, or types that both can import."
            )
            raise
        for failure in reply.failures:
            failure.error = carried_error(failure.error)
        return reply

    def put_step(self, slot: int) -> None:
        words = self._words
        words[COMMAND] = (words[COMMAND] | 7) + 1 + slot
        self._release()

    def end_step(self) -> bool | None:
        if not (self._acquire(False) or self._done.wait(self._spin, PARK_S)):
            return None
        number, said = self._words[COMMAND] >> 3, self._words[ANSWER]
        if said >> 2 != number or said & HAS_REPLY:
            self._done.release()  # for `wait`, to which it is left
            return None
        self._reply, self._taken = None, number
        return (said & HAS_ENDED) != 0

    def at(self) -> Place:
        return place_of(self._words)

    def busy_ns(self) -> int:
        return int(self._words[BUSY_NS])

    def resident_mb(self) -> float:
        return int(self._words[RESIDENT_KB]) / 1024

    def local_envs(self) -> list[Any]:
        return []

    def end(self) -> None:
        if self._child.is_alive():
            self._words[COMMAND] = self._words[COMMAND] & ~7 | END
            self._go.release()

    def close(self, deadline: float) -> list[Failure]:
        try:
            failures = self._last_words(deadline)
            while self._child.is_alive() and time.monotonic() < deadline:
                time.sleep(0.0005)
            return failures
        finally:
            self._child.kill()
            self._child.outcome()
            self._child.close()
            self._pipe.close()
            self._signals.unlink()

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
        env_id, phase, _ = self.at()
        whose = "" if env_id == NOBODY else f" of env {env_id}"
        lost = self._env_ids or (() if env_id == NOBODY else (env_id,))
        text = (
            f"worker {self.number} (pid {self.pid}) {describe_exit(status)} "
            f"{'while idle' if phase == 'idle' else f'in {phase}{whose}'}."
        )
        if lost:
            text += f" Lost with it: {_listed(lost)}."
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            text += " A SIGKILL that nobody sent is usually the system running out of memory."
        if tail:
            text += f" Its last words were:\n{tail}"
        return WorkerDied(text, worker=self.number, env_ids=lost, phase=phase, pid=self.pid)

    def _hang(self, taken_s: float, limit: str) -> WorkerTimeout:
        env_id, phase, _ = self.at()
        self._child.kill()
        self._child.outcome()
        return WorkerTimeout(
            f"env {env_id} has been in {phase} for {taken_s:.2f} s; {limit}. "
            f"Its worker {self.number} (pid {self.pid}) was killed, and with it "
            f"{_listed(self._env_ids)}.",
            worker=self.number,
            env_ids=self._env_ids,
            phase=phase,
            pid=self.pid,
        )

    def _late(self) -> WorkerTimeout:
        env_id, phase, _ = self.at()
        self._child.kill()
        return WorkerTimeout(
            f"worker {self.number} (pid {self.pid}) was still at {phase} of env {env_id} after "
            f"{self._terms.start_timeout_s} s and was killed. Raise start_timeout_s if its "
            "environments need longer to start.",
            worker=self.number,
            env_ids=self._env_ids,
            phase=phase,
            pid=self.pid,
        )

    def _receive(self) -> bytes:
        try:
            while not self._pipe.poll(PARK_S):
                if not self._child.is_alive() and not self._pipe.poll(0):
                    raise self.death()
            return self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise self.death() from None


_STARTING = tuple(map(PHASES.index, ("start", "construct")))
_LIMITED = tuple(map(PHASES.index, ("reset", "step", "replay")))
"""What is under `start_timeout_s`, and what under `step_timeout_s`."""
_CLOSING = PHASES.index("close")


def _next(latest: int, what: int) -> int:
    """The word COMMAND for one more command."""
    return (latest | 7) + 1 + what


def _socket_of(pipe: Connection) -> socket.socket:
    return socket.socket(fileno=os.dup(pipe.fileno()))


def _check_action(env_id: int, action: Any, problem: Exception) -> None:
    """Raise, if it is this action that cannot be pickled."""
    try:
        dump(action)
    except Exception:
        raise ContractError(
            f"the action of env {env_id} cannot be sent to its worker ({problem}): "
            f"{shown(action)}. Give something that can be pickled, or use backend='serial'."
        ) from problem


def _relog(record: logging.LogRecord) -> None:
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _listed(env_ids: Sequence[int]) -> str:
    if len(env_ids) == 1:
        return f"env {env_ids[0]}"
    if env_ids[-1] - env_ids[0] + 1 == len(env_ids):
        return f"envs {env_ids[0]} to {env_ids[-1]}"
    return f"envs {', '.join(map(str, env_ids))}"
