"""The worker's side of the process backend: its program, its channel, its replies as bytes."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle

from shoal.engine import launch
from shoal.engine.backends.process.header import (
    AHEAD,
    ANSWER,
    BUSY_NS,
    COMMAND,
    DONE,
    END,
    HAS_ENDED,
    HAS_REPLY,
    MESSAGE,
    MUCH,
    RESIDENT_KB,
    STEP_ALL,
    STEP_SOME,
    WANTED,
    Header,
    number_answered,
    number_asked,
)
from shoal.engine.commands import Attach, Build, Command, Factory, Failure, Reply, Step
from shoal.engine.infos import ColumnSpec
from shoal.engine.launch import Outfit
from shoal.engine.machine import resident_kb
from shoal.engine.memory import Memory
from shoal.engine.parcel import Parcel, unpack
from shoal.engine.registry import adopt
from shoal.engine.rows import Rows, RowShape
from shoal.engine.signals import Semaphore, Spin
from shoal.engine.worker import Manner, Share, serve

_LOOK_AT_MEMORY_S = 0.1
_IDLE_PARK_S = 1.0
"""How long an idle worker sleeps before it looks whether its parent still lives."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a worker is told before anything else."""

    manner: Manner
    log_level: int
    spin: Spin
    block: int
    """Where its signals lie."""
    names: tuple[str, ...]
    """Of its semaphores, where they have any."""
    registry: Parcel | None
    """The environments that are registered with the caller."""
    watches_memory: bool
    """Whether it is to say, now and then, how much it has."""
    build: Build | None = None
    """Its first command, where that need not travel."""


class Packed(Sequence[Factory]):
    """Factories that are unpacked when they are needed: that may fail, and then has to be told."""

    def __init__(self, parcel: Parcel, registry: Parcel | None, store: Memory) -> None:
        self._parcel, self._registry, self._store = parcel, registry, store
        self._factories: Sequence[Factory] | None = None

    def __getitem__(self, index: Any) -> Any:
        if self._factories is None:
            size = os.fstat(self._store.fd).st_size
            large = self._store.view(writable=False) if size else None
            launch.importing = True
            try:
                if self._registry is not None:
                    adopt(unpack(self._registry, large))
                self._factories = unpack(self._parcel, large)
            finally:
                launch.importing = False
        return self._factories[index]

    def __len__(self) -> int:
        return len(self[:])


@dataclass(frozen=True, slots=True)
class BuildMessage:
    """`Build`, with the factories packed."""

    build: Build
    factories: Parcel


@dataclass(frozen=True, slots=True)
class AttachMessage:
    """`Attach`; the descriptor of the memory that the rows lie in follows."""

    shape: RowShape
    columns: Sequence[ColumnSpec]


class SignalChannel:
    """The worker's end: semaphores for every command, the pipe for those that say more."""

    def __init__(self, outfit: Outfit, order: Order, header: Header, pipe: Connection) -> None:
        block = order.block
        places = order.names or (header.place(block, 0), header.place(block, 1), header.bell)
        self._go, self._done, *bell = (Semaphore.open(place) for place in places)
        self._bell = bell[0] if bell else None
        for semaphore in (self._go, self._done):
            semaphore.unlink()  # nobody else needs their names
        self._words, self._common, self._header = header.words(block), header.common, header
        self._pipe, self._order, self._parent_pid = pipe, order, outfit.parent_pid
        self._store = Memory(outfit.store_fd)
        self._first, self._next_look = order.build, 0.0
        self._steps: dict[int, Step] = {}
        self._spin = order.spin
        self._number, self._what = 0, MESSAGE
        """Of the command that is being carried out, and what it is."""
        self._goes_on = True
        """Whether the caller need not hear of that before the next one is begun."""
        self.log_records: list[logging.LogRecord] = []
        self.share: Share | None = None

    def get(self) -> Command | None:
        if self._first is not None:
            first, self._first = self._first, None
            self._number = number_asked(self._words)
            return first
        words = self._words
        while True:
            if not self._go.wait(self._spin, _IDLE_PARK_S) and os.getppid() != self._parent_pid:
                os._exit(1)
            # Each once, for they change meanwhile, and this one first: before the caller puts the
            # next step ahead, the one that was there has become the command.
            ahead, command = words[AHEAD], words[COMMAND]
            if command & 7 == END:
                return None
            number = number_answered(words) + 1
            if self._goes_on and ahead >> 3 == number:
                command = ahead
            if command >> 3 == number:
                break
        self._number, self._what = number, command & 7
        if self._what == MESSAGE:
            return self._unwrapped(pickle.loads(self._pipe.recv_bytes()))
        return self._steps[self._what]

    def _unwrapped(self, message: Any) -> Command:
        if type(message) is BuildMessage:
            assignment = message.build.assignment
            packed = Packed(message.factories, self._order.registry, self._store)
            return Build(replace(assignment, factories=packed))
        if type(message) is AttachMessage:
            with socket.socket(fileno=os.dup(self._pipe.fileno())) as carrier:
                _, fds, _, _ = socket.recv_fds(carrier, 1, 1)
            memory = Memory(fds[0])
            rows = Rows(message.shape, memory.view)
            memory.close()
            self._steps = {
                kind + slot: Step(slot, kind == STEP_ALL)
                for slot in range(message.shape.slots)
                for kind in (STEP_ALL, STEP_SOME)
            }
            return Attach(rows, message.columns)
        return message  # type: ignore[no-any-return]

    def answer(self, reply: Reply | None) -> None:
        share, words = self.share, self._words
        assert share is not None
        if self.log_records:
            reply = reply or Reply()
            reply.logs, self.log_records[:] = list(self.log_records), []
        words[BUSY_NS] = share.busy_ns
        if self._order.watches_memory and time.monotonic() > self._next_look:
            self._next_look = time.monotonic() + _LOOK_AT_MEMORY_S
            words[RESIDENT_KB] = resident_kb()
        payload = None if reply is None else dump_reply(reply)
        self._goes_on = payload is None
        share.rest()
        said = HAS_ENDED if share.has_ended else 0
        words[ANSWER] = self._number << 2 | said | (0 if payload is None else HAS_REPLY)
        if self._what >= STEP_SOME:
            is_quiet_step = payload is None and self._what < MESSAGE
            words[DONE] += share.num_stepped if is_quiet_step else MUCH
        self._done.release()
        wanted = self._common[WANTED]
        if wanted and self._bell is not None and self._header.done() >= wanted:
            self._bell.release()
        if payload is not None:
            self._pipe.send_bytes(payload)


def work(outfit: Outfit, order: Order | None) -> None:
    """The worker's program: introduce itself, serve, close."""
    pipe, memory = Connection(outfit.channel_fd), Memory(outfit.signals_fd)
    header = Header(memory.view())
    memory.close()
    try:
        order = order or pickle.loads(pipe.recv_bytes())
        channel = SignalChannel(outfit, order, header, pipe)
        channel.log_records = _collect_logs(order.log_level, outfit.number)
        channel.share = share = Share(order.manner, header.words(order.block))
        serve(channel, share)
    except (EOFError, ConnectionError):
        return  # the caller is gone, and there is nobody to tell
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
    kept = replace(reply, odd_infos=[], objects={}, final_objects={}, results={}, built=None)
    if reply.built is not None and _check_pickles(
        reply.built, "its spaces or metadata", reply.built.env_ids[0], "construct", kept
    ):
        kept.built = reply.built
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


class CarriedError(Exception):
    """An exception as bytes: whoever reads it may not be able to make it again."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(payload)
        self.payload = payload


def carried_error(error: BaseException | None) -> BaseException | None:
    """What was carried; None where it cannot be made again here."""
    if not isinstance(error, CarriedError):
        return error
    try:
        original: BaseException = pickle.loads(error.payload)
    except Exception:
        return None
    return original


def _travelling(failure: Failure) -> Failure:
    """The failure with its exception only if that survives the journey."""
    try:
        carried = CarriedError(dump(failure.error))
        failure.error = carried if carried_error(carried) is not None else None
    except Exception:
        failure.error = None
    return failure
