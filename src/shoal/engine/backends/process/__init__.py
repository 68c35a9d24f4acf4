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

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe

from shoal.engine import launch
from shoal.engine.backends import Terms
from shoal.engine.backends.process.header import LISTENING, Header
from shoal.engine.backends.process.inside import Order
from shoal.engine.backends.process.outside import PARK_S, Child, ForkedChild, ProcessWorker
from shoal.engine.commands import Assignment
from shoal.engine.launch import Outfit
from shoal.engine.machine import free_descriptors, is_portable, usable_cores
from shoal.engine.memory import Memory
from shoal.engine.parcel import Parcel, Store, pack
from shoal.engine.registry import registered
from shoal.engine.rows import Rows, RowShape
from shoal.engine.server import Server, run_worker
from shoal.engine.signals import Semaphore
from shoal.errors import ConfigError

SPIN_S = 100e-6


class ProcessBackend:
    """Worker processes, over shared memory."""

    name = "process"

    def __init__(self, terms: Terms) -> None:
        if launch.importing:
            raise ConfigError(
                "a module that workers import makes environments when it is imported, which would "
                "go on for ever. Put that into a function, or under `if __name__ == '__main__':`."
            )
        self._terms = terms
        self.start_method = _start_method(terms.start_method)
        self._memory, self._store = Memory.create(), Store()
        self._server: Server | None = None
        self.workers: list[ProcessWorker] = []
        self._bell: Semaphore | None = None

    def start(self, assignments: Sequence[Assignment]) -> list[ProcessWorker]:
        _check_descriptors(len(assignments))
        if self.start_method != "fork":
            # First what may be refused, then the first process.
            registry = registered(self._store)
            orders = [self._order(assignment, registry) for assignment in assignments]
            self._server = Server(self._terms.preload, fork=self.start_method == "forkserver")
        self._memory.resize(Header.nbytes(len(assignments)))
        self._header = Header(self._memory.view())
        for assignment in assignments:
            ours, theirs = Pipe()
            try:
                child = self._start_process(assignment, ours, theirs)
            except BaseException:
                ours.close()
                raise
            finally:
                theirs.close()
            self.workers.append(ProcessWorker(assignment, self._terms, self._header, ours, child))
        if self.start_method != "fork":
            for worker, order in zip(self.workers, orders, strict=True):
                worker.introduce(order)
        return self.workers

    def _order(self, assignment: Assignment, registry: Parcel) -> Order:
        factories = pack(list(assignment.factories), self._store)
        bare = replace(assignment, factories=())
        return Order(
            bare, self._terms.step_timeout_s is not None, _log_level(), factories, registry
        )

    def _start_process(
        self, assignment: Assignment, ours: Connection, theirs: Connection
    ) -> Child | ForkedChild:
        fds = (theirs.fileno(), self._memory.fd, self._store.memory.fd)
        if self._server is not None:
            deadline = time.monotonic() + self._terms.start_timeout_s
            return Child(self._server, *self._server.start(assignment.worker, fds, deadline))
        channel, memory, store = (os.dup(fd) for fd in fds)
        outfit = Outfit(
            assignment.worker, os.getpid(), channel, memory, store, is_fork_of_caller=True
        )
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                ours.close()
                # What it needs is in its memory already: nothing is pickled.
                order = Order(assignment, self._terms.step_timeout_s is not None, _log_level())
                code = run_worker(outfit, order)
            finally:
                os._exit(code)
        for fd in outfit.fds:
            os.close(fd)
        return ForkedChild(pid)

    def make_rows(self, shape: RowShape) -> Rows:
        offset = Header.nbytes(len(self.workers))
        self._memory.resize(offset + shape.nbytes())
        portable = is_portable()
        self._bell = Semaphore.create(None if portable else self._header.bell)
        # Spinning pays only while everyone has a core of its own.
        spin_s = SPIN_S if len(self.workers) < usable_cores() else 0.0
        order = {
            "shape": shape,
            "offset": offset,
            "autoreset": self._terms.autoreset,
            "check_finite": self._terms.check_finite,
            "spin_s": spin_s,
        }
        try:
            for worker in self.workers:
                worker.prepare(order, self._bell.name, spin_s)
            for worker in self.workers:
                worker.attach()
        finally:
            for worker in self.workers:
                worker.unlink()
            self._bell.unlink()
        return Rows(shape, self._memory.view()[offset:])

    def listen(self, timeout_s: float, look: Callable[[], bool]) -> None:
        assert self._bell is not None
        common = self._header.common
        common[LISTENING] = 1
        if not look():
            self._bell.acquire(True, min(timeout_s, PARK_S))
        common[LISTENING] = 0

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._memory.close()
        self._store.memory.close()


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
