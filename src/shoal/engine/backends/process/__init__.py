"""Processes: true parallelism, and a crash of one worker stays its own.

    caller                                          worker (one of several)
      rows.actions ─────────shared memory────────────► rows.actions
      go.release() ─────────semaphore────────────────► go.acquire()      spin, then park
                                                          execute(...)
      done.acquire() ◄──────semaphore────────────────  done.release()    (and the bell, if that is
      rows.observations ◄───shared memory────────────  rows.*             what the caller waits for)

A step that needs no message makes none. Everything else goes through the worker's channel, a
socket pair, announced by the same semaphores. A death is noticed by watching the process itself.
Each worker process has a channel and semaphores that no other ever had: an answer from before a
restart finds nobody who would read it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe

from shoal.engine import launch
from shoal.engine.backends import Terms
from shoal.engine.backends.process.header import WANTED, Header
from shoal.engine.backends.process.inside import Order
from shoal.engine.backends.process.outside import (
    PARK_S,
    Child,
    ForkedChild,
    ProcessWorker,
    WorkerSignals,
)
from shoal.engine.commands import Build, Factory
from shoal.engine.launch import Outfit
from shoal.engine.machine import free_descriptors, is_portable, usable_cores
from shoal.engine.memory import Memory
from shoal.engine.nursery import run_worker
from shoal.engine.parcel import Parcel, Store, pack
from shoal.engine.registry import registered
from shoal.engine.rows import Rows, RowShape
from shoal.engine.server import Server
from shoal.engine.shelves import forking_worker
from shoal.engine.signals import Semaphore, Spin
from shoal.errors import ConfigError, WorkerTimeout

SPIN_S, CROWDED_SPIN_S = 5e-3, 1e-4
"""How long to spin where everyone has a core of its own, and where only the workers have.

The first is longer than waking takes on a guest of a busy host (1.5 ms was seen), for a spin that
ends before those who sleep are awake sends the next one to sleep.
"""
_POLL_S = 0.001
"""How often to look for an answer where there is no bell."""
_PARK_S = PARK_S if ProcessWorker.takes_ahead else _POLL_S
"""The same where there is one. A processor that is free in its order may keep it from ringing."""
_ROOM_FOR_WORKERS = 256
"""Signals have room for at least so many, and so for later ones."""
_SPARE_BLOCKS = 16
"""Room for the successors of processes that have been killed and do not end."""


class ProcessBackend:
    """Worker processes, over shared memory; `num_own` of a pool's workers are not among them."""

    name = "process"
    loses_workers = True

    def __init__(self, terms: Terms, num_own: int = 0) -> None:
        if launch.importing:
            raise ConfigError(
                "a module that workers import makes environments when it is imported, which would "
                "go on for ever. Put that into a function, or under `if __name__ == '__main__':`."
            )
        self._terms, self._num_own = terms, num_own
        self.start_method = _start_method(terms.start_method)
        self._signals, self._store = Memory.create(), Store()
        self._memories: weakref.WeakSet[Memory] = weakref.WeakSet()
        """Those of all rows that are still in use."""
        self._server: Server | None = None
        self._header: Header | None = None
        self._tenants: dict[int, Child | ForkedChild] = {}
        """Who was given each block of the header last."""
        self._bell: Semaphore | None = None
        self._registry: Parcel | None = None
        self._spin = Spin(0.0)
        """Of whoever listens to all workers."""

    def launch(self, builds: Sequence[Build], started: Callable[[ProcessWorker], None]) -> None:
        # First what may be refused, then the first process.
        _check_descriptors(len(builds))
        parcels: list[Parcel | None] = [None for _ in builds]
        if self.start_method != "fork":
            self._registry = self._registry or registered(self._store)
            parcels = [self._pack(build.assignment.factories) for build in builds]
            self._meet_server()
        header = self._meet_header(max(build.assignment.worker for build in builds) + 1)
        for build, factories in zip(builds, parcels, strict=True):
            worker = self._start(build, header)
            started(worker)
            if factories is not None:
                worker.put_build(build, factories)

    def _pack(self, factories: Sequence[Factory]) -> Parcel:
        return pack(list(factories), self._store)

    def _meet_server(self) -> None:
        """There must be a server to start workers; one that has died is replaced."""
        if self._server is not None and self._server.has_ended():
            self._server.close()
            self._server = None
        if self._server is None:
            self._server = Server(self._terms.preload, fork=self.start_method == "forkserver")

    def _meet_header(self, num_workers: int) -> Header:
        if self._header is None:
            self._signals.resize(Header.nbytes(_SPARE_BLOCKS + max(num_workers, _ROOM_FOR_WORKERS)))
            self._header = Header(self._signals.view())
            if not is_portable():
                self._bell = Semaphore.create(self._header.bell)
        room = self._header.capacity - _SPARE_BLOCKS
        if num_workers > room:
            raise ConfigError(
                f"{num_workers} workers are more than this pool has room for ({room}). "
                "Make a new one."
            )
        return self._header

    def _start(self, build: Build, header: Header) -> ProcessWorker:
        assignment = build.assignment
        num_processes = assignment.num_workers - self._num_own
        self._spin = _spin(num_processes)
        block = self._free_block(assignment.worker, header)
        signals = WorkerSignals(header, block, _spin(num_processes))
        order = Order(
            self._terms.manner(),
            _log_level(),
            _spin(num_processes),
            block,
            signals.names(),
            self._registry,
            self._terms.watches_memory,
        )
        ours, theirs = Pipe()
        child: Child | ForkedChild | None = None
        try:
            with theirs:
                if self._server is None:
                    signals.announce()
                    child = self._fork(replace(order, build=build), ours, theirs)
                else:
                    child = self._ask_server(assignment.worker, theirs)
            self._tenants[block] = child
            worker = ProcessWorker(assignment, self._terms, signals, ours, child, self._pack)
            if self._server is not None:
                worker.introduce(order)
            return worker
        except BaseException:
            if child is not None:
                child.kill()
            ours.close()
            signals.unlink()
            raise

    def _free_block(self, number: int, header: Header) -> int:
        """The worker's own, unless the process before it may still write there; else a spare."""
        for block in (number, *reversed(range(header.capacity))):
            if block not in self._tenants or not self._tenants[block].is_alive():
                return block
        raise WorkerTimeout(
            f"worker {number} cannot be started: {header.capacity} processes before it have been "
            "killed and do not end. Look for what holds them (`ps` shows state D), or make new "
            "environments.",
            worker=number,
            phase="start",
        )

    def _ask_server(self, number: int, theirs: Connection) -> Child:
        assert self._server is not None
        fds = (theirs.fileno(), self._signals.fd, self._store.memory.fd)
        deadline = time.monotonic() + self._terms.start_timeout_s
        return Child(self._server, number, fds, deadline)

    def _fork(self, order: Order, ours: Connection, theirs: Connection) -> ForkedChild:
        assert order.build is not None
        fds = (theirs.fileno(), self._signals.fd, self._store.memory.fd)
        channel, signals, store = (os.dup(fd) for fd in fds)
        number = order.build.assignment.worker
        outfit = Outfit(number, os.getpid(), channel, signals, store, is_fork_of_caller=True)
        sys.stdout.flush()
        sys.stderr.flush()
        with forking_worker():
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                ours.close()
                code = run_worker(outfit, order)  # with all it needs in its memory already
            finally:
                os._exit(code)
        for fd in outfit.fds:
            os.close(fd)
        return ForkedChild(pid)

    def make_rows(self, shape: RowShape) -> Rows:
        memory = Memory.create()
        memory.resize(shape.nbytes(), shape.own_bytes())
        rows = Rows(shape, memory.view)
        rows.memory = memory
        self._memories.add(memory)
        return rows

    def done(self) -> int:
        return 0 if self._header is None else self._header.done()

    def listen(self, timeout_s: float, wanted: int) -> None:
        header, bell = self._header, self._bell
        if header is None:  # nobody was ever launched
            return
        if bell is None:
            time.sleep(min(timeout_s, _POLL_S))
            return
        begun = time.perf_counter()
        if self._spin.until(lambda: header.done() >= wanted, begun, timeout_s):
            return
        while bell.acquire(False):  # two may have rung for what one wait was for
            pass
        try:
            header.common[WANTED] = wanted
            if header.done() < wanted:
                bell.acquire(True, min(timeout_s, _PARK_S))
        finally:
            header.common[WANTED] = 0
        self._spin.learn(time.perf_counter() - begun)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for memory in (self._signals, self._store.memory, *self._memories):
            memory.close()


def _spin(num_processes: int) -> Spin:
    """How to wait with so many workers beside the caller. More than there are cores do not spin."""
    cores = usable_cores()
    if num_processes == cores:
        return Spin(CROWDED_SPIN_S, yield_s=0.0)
    return Spin(SPIN_S if num_processes < cores else 0.0)


def _check_descriptors(num_workers: int) -> None:
    """Two descriptors a worker, and some for the pool: better refused now than halfway."""
    needed, free = 2 * num_workers + 16, free_descriptors()
    if free is not None and needed > free:
        raise ConfigError(
            f"{num_workers} workers need {needed} file descriptors; only {free} are left to this "
            "process. Raise its limit (`ulimit -n`), close what is open, or use fewer workers; the "
            "number of environments does not matter."
        )


def _log_level() -> int:
    return logging.getLogger().level


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
