"""The worker's side of the process backend: its program, its channel, its replies as bytes."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from shoal.engine import launch
from shoal.engine.backends.process.header import (
    BUSY_NS,
    END,
    HAS_REPLY,
    LISTENING,
    MESSAGE,
    OP,
    SLOT,
    STEP_ALL,
    STEP_SOME,
    Header,
)
from shoal.engine.build import build, describe
from shoal.engine.commands import Assignment, Command, Failure, Reply, Step, failure_of
from shoal.engine.launch import Outfit
from shoal.engine.memory import Memory
from shoal.engine.parcel import Parcel, unpack
from shoal.engine.registry import adopt
from shoal.engine.rows import Rows, RowShape
from shoal.engine.signals import Semaphore
from shoal.engine.worker import Share, serve

_IDLE_PARK_S = 1.0
"""How long an idle worker sleeps before it looks whether its parent still lives."""


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
        parent_pid: int,
    ) -> None:
        places = names or (header.place(number, 0), header.place(number, 1), header.bell)
        self._go, self._done, self._bell = (Semaphore.open(place) for place in places)
        self._words, self._common = header.words(number), header.common
        self._pipe, self._spin_s = pipe, spin_s
        self._parent_pid = parent_pid
        self._steps = {
            op: [Step(slot, op == STEP_ALL) for slot in range(slots)]
            for op in (STEP_ALL, STEP_SOME)
        }
        self.log_records: list[logging.LogRecord] = []
        self.share: Share | None = None

    def get(self) -> Command | None:
        while not self._go.wait(self._spin_s, _IDLE_PARK_S):
            if os.getppid() != self._parent_pid:
                os._exit(1)
        op = self._words[OP]
        if op == MESSAGE:
            command: Command = pickle.loads(self._pipe.recv_bytes())
            return command
        return None if op == END else self._steps[op][self._words[SLOT]]

    def answer(self, reply: Reply | None) -> None:
        if self.log_records:
            reply = reply or Reply()
            reply.logs, self.log_records[:] = list(self.log_records), []
        assert self.share is not None
        self._words[BUSY_NS] = self.share.busy_ns
        self._words[HAS_REPLY] = reply is not None
        payload = None if reply is None else dump_reply(reply)
        self._done.release()
        if self._common[LISTENING]:
            self._bell.release()
        if payload is not None:
            self._pipe.send_bytes(payload)


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is told to build."""

    assignment: Assignment
    timed: bool
    log_level: int
    factories: Parcel | None = None
    """The assignment's factories, where they had to travel."""
    registry: Parcel | None = None

    def unpacked(self, data: Memory) -> Assignment:
        """The assignment, with its factories; makes the caller's registrations known."""
        if self.factories is None or self.registry is None:
            return self.assignment
        large = data.view(writable=False) if os.fstat(data.fd).st_size else None
        launch.importing = True
        try:
            adopt(unpack(self.registry, large))
            return replace(self.assignment, factories=unpack(self.factories, large))
        finally:
            launch.importing = False


def work(outfit: Outfit, order: Order | None) -> None:
    """The worker's program: build, introduce itself, take its rows, serve, close."""
    pipe = Connection(outfit.channel_fd)
    memory, data = Memory(outfit.memory_fd), Memory(outfit.store_fd)
    header = Header(memory.view())
    order = order or pickle.loads(pipe.recv_bytes())
    records = _collect_logs(order.log_level, outfit.number)
    try:
        mark = header.words(outfit.number)
        share = build(order.unpacked(data), BaseException, mark, order.timed)
    except BaseException as error:
        _tell(pipe, ("failed", _travelling(failure_of(error)), list(records)))
        return
    try:
        pipe.send_bytes(dump(("built", describe(share), list(records))))
        records.clear()
        attach: dict[str, Any] = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError):
        share.close()  # another worker could not be built, or the caller is gone
        return
    shape: RowShape = attach["shape"]
    rows = Rows(shape, memory.view()[attach["offset"] :])
    for block in (memory, data):
        block.close()
    channel = SignalChannel(
        outfit.number,
        header,
        pipe,
        attach["names"],
        shape.slots,
        attach["spin_s"],
        outfit.parent_pid,
    )
    channel.share, channel.log_records = share, records
    try:
        share.attach(rows, attach["autoreset"], attach["check_finite"])
        pipe.send_bytes(dump(("attached", None, [])))
    except BaseException as error:
        _tell(pipe, ("failed", _travelling(failure_of(error)), []))
        share.close()
        return
    serve(channel, share)
    _tell(pipe, [_travelling(failure) for failure in share.close()])


def _tell(pipe: Connection, message: Any) -> None:
    """A last word, if there is still someone to hear it."""
    with contextlib.suppress(OSError):
        pipe.send_bytes(dump(message))


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


def dump(message: Any) -> bytes:
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
        return dump(reply)
    except Exception:
        return dump(_without_unpicklable(reply))


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
                target[env_id] = value
    return kept


def _check_pickles(value: Any, name: str, env_id: int, phase: str, reply: Reply) -> bool:
    try:
        dump(value)
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
        pickle.loads(dump(failure.error))
    except Exception:
        failure.error = None
    return failure
