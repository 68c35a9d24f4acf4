"""Processes: true parallelism, and a crash of one worker stays its own.

    caller                                          worker (one of several)
      rows.actions ─────────shared memory────────────► rows.actions
      go.release() ─────────semaphore────────────────► go.acquire()      spin, then park
                                                          execute(...)
      done.acquire() ◄──────semaphore────────────────  done.release()    (and the bell, if the
      rows.observations ◄───shared memory────────────  rows.*             caller listens to all)

A step that needs no message makes none. Everything else goes through the worker's channel, a
socket pair, announced by the same semaphores. A death is noticed by watching the process itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any

import cloudpickle

from shoal.engine.backends import Assignment, Terms
from shoal.engine.launch import Outfit, describe_exit
from shoal.engine.machine import is_portable, usable_cores
from shoal.engine.memory import Memory
from shoal.engine.parcel import Parcel, Store, pack, unpack
from shoal.engine.registry import adopt, registered
from shoal.engine.rows import Rows, RowShape
from shoal.engine.server import Server, run_worker
from shoal.engine.signals import SEMAPHORE_BYTES, Semaphore
from shoal.engine.worker import (
    MARK_ENV,
    MARK_PHASE,
    MARK_SINCE_NS,
    PHASES,
    Built,
    Command,
    Failure,
    Reply,
    Share,
    Step,
    build,
    describe,
    failure_of,
    serve,
)
from shoal.errors import ConfigError, WorkerDied, WorkerTimeout

_WORDS = 16
_OP, _SLOT, _HAS_REPLY, _BUSY_NS = 4, 5, 6, 7  # the first words are the worker's mark
_STEP_ALL, _STEP_SOME, _MESSAGE, _END = range(4)
_LISTENING = 0
_BLOCK_BYTES = 2 * SEMAPHORE_BYTES + 8 * _WORDS

SPIN_S = 100e-6
PARK_S = 0.02
"""How long a wait sleeps before it looks whether the other side still lives."""
_IDLE_PARK_S = 1.0


class Header:
    """The head of the shared memory: the bell, then for each worker two semaphores and words."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    @staticmethod
    def nbytes(num_workers: int) -> int:
        return SEMAPHORE_BYTES * 2 + num_workers * _BLOCK_BYTES

    def place(self, worker: int, index: int) -> memoryview:
        at = SEMAPHORE_BYTES * 2 + worker * _BLOCK_BYTES + index * SEMAPHORE_BYTES
        return self._view[at : at + SEMAPHORE_BYTES]

    def words(self, worker: int) -> memoryview:
        at = SEMAPHORE_BYTES * 2 + worker * _BLOCK_BYTES + 2 * SEMAPHORE_BYTES
        return self._view[at : at + 8 * _WORDS].cast("q")

    @property
    def bell(self) -> memoryview:
        return self._view[:SEMAPHORE_BYTES]

    @property
    def common(self) -> memoryview:
        return self._view[SEMAPHORE_BYTES : 2 * SEMAPHORE_BYTES].cast("q")


# --- the worker's side -------------------------------------------------------------------------


class SignalChannel:
    """The worker's end: semaphores for every command, the pipe for those that say more."""

    def __init__(
        self,
        number: int,
        header: Header,
        pipe: Connection,
        names: Sequence[str],
        slots: int,
        spin_s: float,
    ) -> None:
        places = names or (header.place(number, 0), header.place(number, 1), header.bell)
        self._go, self._done, self._bell = (Semaphore.open(place) for place in places)
        self._words, self._common = header.words(number), header.common
        self._pipe, self._spin_s = pipe, spin_s
        self._parent_pid = os.getppid()
        self._steps = {
            op: [Step(slot, op == _STEP_ALL) for slot in range(slots)]
            for op in (_STEP_ALL, _STEP_SOME)
        }
        self.log_records: list[logging.LogRecord] = []
        self.share: Share | None = None

    def get(self) -> Command | None:
        while not self._go.wait(self._spin_s, _IDLE_PARK_S):
            if os.getppid() != self._parent_pid:
                os._exit(1)
        op = self._words[_OP]
        if op == _MESSAGE:
            command: Command = pickle.loads(self._pipe.recv_bytes())
            return command
        return None if op == _END else self._steps[op][self._words[_SLOT]]

    def answer(self, reply: Reply | None) -> None:
        if self.log_records:
            reply = reply or Reply()
            reply.logs, self.log_records[:] = list(self.log_records), []
        assert self.share is not None
        self._words[_BUSY_NS] = self.share.busy_ns
        self._words[_HAS_REPLY] = reply is not None
        payload = None if reply is None else dump_reply(reply)
        self._done.release()
        if self._common[_LISTENING]:
            self._bell.release()
        if payload is not None:
            self._pipe.send_bytes(payload)


def work(outfit: Outfit) -> None:
    """The worker's program: build, introduce itself, take its rows, serve, close."""
    pipe = Connection(outfit.channel_fd)
    memory, data = Memory(outfit.memory_fd), Memory(outfit.store_fd)
    header = Header(memory.view())
    order: dict[str, Any] = pickle.loads(pipe.recv_bytes())
    records = _collect_logs(order["log_level"], outfit.number)
    try:
        large = data.view(writable=False) if os.fstat(data.fd).st_size else None
        adopt(unpack(order["registry"], large))
        share = build(
            unpack(order["factories"], large),
            order["first_id"],
            order["count"],
            BaseException,
            header.words(outfit.number),
            order["timed"],
        )
        pipe.send_bytes(_dump(("built", describe(share), list(records))))
    except BaseException as error:
        pipe.send_bytes(_dump(("failed", _travelling(failure_of(error)), list(records))))
        return
    records.clear()
    attach: dict[str, Any] = pickle.loads(pipe.recv_bytes())
    shape: RowShape = attach["shape"]
    rows = Rows(shape, memory.view()[attach["offset"] :])
    for block in (memory, data):
        block.close()
    channel = SignalChannel(
        outfit.number, header, pipe, attach["names"], shape.slots, attach["spin_s"]
    )
    channel.share, channel.log_records = share, records
    try:
        share.attach(rows, attach["autoreset"], attach["check_finite"])
        pipe.send_bytes(_dump(("attached", None, [])))
    except BaseException as error:
        pipe.send_bytes(_dump(("failed", _travelling(failure_of(error)), [])))
        return
    serve(channel, share)
    failures = [_travelling(failure) for failure in share.close()]
    with contextlib.suppress(OSError):
        pipe.send_bytes(_dump(failures))


class _Collector(logging.Handler):
    def __init__(self, records: list[logging.LogRecord], number: int) -> None:
        super().__init__()
        self._records, self._number = records, number

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        record.msg, record.args, record.exc_info, record.exc_text = (
            f"[worker {self._number}] {text}",
            None,
            None,
            None,
        )
        self._records.append(record)


def _collect_logs(level: int, number: int) -> list[logging.LogRecord]:
    """All logging of this process goes to a list, which travels with the replies."""
    records: list[logging.LogRecord] = []
    root = logging.getLogger()
    root.handlers[:] = [_Collector(records, number)]
    root.setLevel(level)
    return records


def _dump(message: Any) -> bytes:
    """Plain pickle where it will do (it is several times faster), else by value."""
    try:
        return pickle.dumps(message, protocol=5)
    except Exception:
        payload: bytes = cloudpickle.dumps(message, protocol=5)
        return payload


def dump_reply(reply: Reply) -> bytes:
    """A reply as bytes; what cannot be pickled becomes a failure that says so."""
    reply.failures = [_travelling(failure) for failure in reply.failures]
    try:
        return _dump(reply)
    except Exception:
        return _dump(_without_unpicklable(reply))


def _without_unpicklable(reply: Reply) -> Reply:
    kept = Reply(
        failures=list(reply.failures), notes=reply.notes, final_scalars=reply.final_scalars
    )
    for odd in reply.odd_infos:
        name = "info" + "".join(f"[{key!r}]" for key in odd.path)
        if _check_pickles(odd.value, name, odd.env_id, "step", kept):
            kept.odd_infos.append(odd)
    for source, target, name in (
        (reply.objects, kept.objects, "observation"),
        (reply.final_objects, kept.final_objects, "observation"),
        (reply.results, kept.results, "the result"),
    ):
        phase = "call" if target is kept.results else "step"
        for env_id, value in source.items():
            if _check_pickles(value, name, env_id, phase, kept):
                target[env_id] = value  # type: ignore[assignment]
    return kept


def _check_pickles(value: Any, name: str, env_id: int, phase: str, reply: Reply) -> bool:
    try:
        _dump(value)
    except Exception as problem:
        text = (
            f"{name} is a {type(value).__name__}, which cannot be sent between processes "
            f"({problem}). Leave it out, or use backend='serial' or 'thread'."
        )
        reply.failures.append(Failure((env_id,), phase, None, type(problem).__name__, text, text))
        return False
    return True


def _travelling(failure: Failure) -> Failure:
    """The failure with its exception only if that survives the journey."""
    try:
        pickle.loads(_dump(failure.error))
    except Exception:
        failure.error = None
    return failure


# --- the caller's side -------------------------------------------------------------------------


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
        self.number, self.pid = assignment.worker, child.pid
        self._terms, self._header, self._pipe, self._child = terms, header, pipe, child
        self._words = header.words(self.number)
        self._env_ids: tuple[int, ...] = ()
        self._first_id, self._spin_s = assignment.first_id, 0.0
        self._deadline = time.monotonic() + terms.start_timeout_s
        self._go: Semaphore
        self._done: Semaphore

    def introduce(self, order: dict[str, Any]) -> None:
        """Tell it what to build."""
        with contextlib.suppress(OSError):  # a death is noticed by whoever waits for the answer
            self._pipe.send_bytes(_dump(order))

    def built(self) -> Built:
        built: Built = self._expect("built")
        self._env_ids = tuple(range(self._first_id, self._first_id + sum(built.widths)))
        return built

    def prepare(self, order: dict[str, Any], bell_name: str | None, spin_s: float) -> None:
        """Make the semaphores and tell the worker where they and its rows are."""
        places = [self._header.place(self.number, k) for k in (0, 1)]
        portable = is_portable()
        self._go, self._done = (Semaphore.create(None if portable else place) for place in places)
        self._spin_s = spin_s
        names = (self._go.name, self._done.name, bell_name) if portable else ()
        with contextlib.suppress(OSError):
            self._pipe.send_bytes(cloudpickle.dumps({**order, "names": names}))

    def attach(self, rows: Rows) -> None:
        try:
            self._expect("attached")
        finally:
            self._go.unlink()
            self._done.unlink()

    def put(self, command: Command) -> None:
        words = self._words
        if type(command) is Step and command.is_light:
            words[_SLOT] = command.slot
            words[_OP] = _STEP_ALL if command.everyone else _STEP_SOME
            self._go.release()
            return
        payload = cloudpickle.dumps(command, protocol=5)
        words[_OP] = _MESSAGE
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
        if not self._words[_HAS_REPLY]:
            return None
        reply: Reply = pickle.loads(self._receive())
        for record in reply.logs:
            _relog(record)
        return reply

    def busy_ns(self) -> int:
        return int(self._words[_BUSY_NS])

    def local_envs(self) -> list[Any]:
        return []

    def close(self, deadline: float) -> list[Failure]:
        failures: list[Failure] = []
        if self._child.is_alive() and hasattr(self, "_go"):
            self._words[_OP] = _END
            self._go.release()
            with contextlib.suppress(OSError, EOFError):
                while self._pipe.poll(max(0.0, deadline - time.monotonic())):
                    # Perhaps first the reply to a step that nobody waited for.
                    message = pickle.loads(self._pipe.recv_bytes())
                    if isinstance(message, list):
                        failures = message
                        break
        self._pipe.close()
        while self._child.is_alive() and time.monotonic() < deadline:
            time.sleep(0.0005)
        self._child.kill()
        self._child.outcome()
        self._child.close()
        return failures

    def death(self) -> WorkerDied:
        """The error that says how this worker ended and at what."""
        status, tail = self._child.outcome()
        env_id, phase = self._at()
        text = (
            f"worker {self.number} (pid {self.pid}) {describe_exit(status)} in {phase} of env {env_id}. "
            f"Lost with it: {_listed(self._env_ids or (env_id,))}."
        )
        if status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            text += " A SIGKILL that nobody sent is usually the system running out of memory."
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
                        f"worker {self.number} (pid {self.pid}) was still busy with "
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


class ProcessBackend:
    """Worker processes, over shared memory."""

    name = "process"

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self.start_method = _start_method(terms.start_method)
        self._memory, self._store = Memory.create(), Store()
        self._server: Server | None = None
        self._workers: list[ProcessWorker] = []
        self._bell: Semaphore | None = None

    def start(self, assignments: Sequence[Assignment]) -> list[ProcessWorker]:
        if self.start_method != "fork":
            self._server = Server(self._terms.preload, fork=self.start_method == "forkserver")
        forked = self.start_method == "fork"
        registry = Parcel(cloudpickle.dumps({})) if forked else registered(self._store)
        orders = [self._order(assignment, registry) for assignment in assignments]
        self._memory.resize(Header.nbytes(len(assignments)))
        self._header = Header(self._memory.view())
        for assignment in assignments:
            ours, theirs = Pipe()
            child = self._start_process(assignment, ours, theirs)
            theirs.close()
            self._workers.append(ProcessWorker(assignment, self._terms, self._header, ours, child))
        for worker, order in zip(self._workers, orders, strict=True):
            worker.introduce(order)
        return self._workers

    def _order(self, assignment: Assignment, registry: Parcel) -> dict[str, Any]:
        return {
            "factories": pack(list(assignment.factories), self._store),
            "registry": registry,
            "first_id": assignment.first_id,
            "count": assignment.count,
            "timed": self._terms.step_timeout_s is not None,
            "log_level": logging.getLogger().level,
        }

    def _start_process(
        self, assignment: Assignment, ours: Connection, theirs: Connection
    ) -> Child | ForkedChild:
        fds = (theirs.fileno(), self._memory.fd, self._store.memory.fd)
        if self._server is not None:
            return Child(self._server, *self._server.start(assignment.worker, fds))
        outfit = Outfit(assignment.worker, os.getpid(), *(os.dup(fd) for fd in fds))
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            os._exit(run_worker(outfit))
        for fd in outfit.fds:
            os.close(fd)
        return ForkedChild(pid)

    def make_rows(self, shape: RowShape) -> Rows:
        offset = Header.nbytes(len(self._workers))
        self._memory.resize(offset + shape.nbytes())
        portable = is_portable()
        self._bell = Semaphore.create(None if portable else self._header.bell)
        # Spinning pays only while everyone has a core of its own.
        spin_s = SPIN_S if len(self._workers) < usable_cores() else 0.0
        order = {
            "shape": shape,
            "offset": offset,
            "autoreset": self._terms.autoreset,
            "check_finite": self._terms.check_finite,
            "spin_s": spin_s,
        }
        for worker in self._workers:
            worker.prepare(order, self._bell.name, spin_s)
        return Rows(shape, self._memory.view()[offset:])

    def listen(self, timeout_s: float) -> None:
        assert self._bell is not None
        self._bell.unlink()
        common = self._header.common
        common[_LISTENING] = 1
        self._bell.acquire(True, min(timeout_s, PARK_S))
        common[_LISTENING] = 0

    def close(self) -> None:
        if self._bell is not None:
            self._bell.unlink()
        if self._server is not None:
            self._server.close()
            self._server = None
        self._memory.close()
        self._store.memory.close()


def _start_method(asked: str | None) -> str:
    if os.name == "nt":
        raise ConfigError(
            "backend='process' does not exist on Windows yet. Use backend='thread' or 'serial'."
        )
    if asked is None:
        return "spawn" if is_portable() else "forkserver"
    if asked in ("fork", "forkserver") and (is_portable() or not hasattr(os, "fork")):
        raise ConfigError(
            f"start_method={asked!r} needs fork, which is not used here. Use 'spawn'."
        )
    torch = sys.modules.get("torch")
    if asked == "fork" and torch is not None and torch.cuda.is_initialized():
        raise ConfigError(
            "start_method='fork' cannot be used once CUDA is initialised: the fork would inherit a "
            "broken CUDA. Use 'forkserver' or 'spawn', or create the environments first."
        )
    return asked


def _relog(record: logging.LogRecord) -> None:
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def _listed(env_ids: Sequence[int]) -> str:
    if len(env_ids) == 1:
        return f"env {env_ids[0]}"
    return f"envs {env_ids[0]} to {env_ids[-1]}"
