"""Pool: routes actions to workers and hands back batches. One class, whatever the backend.

Every vector environment that users hold is a thin presentation of a pool. A worker has one command
at a time, its *flight*; what is sent to a busy one waits here until it has landed. Every flight is
landed before anything is raised, so no answer is ever left for a later call to find. An environment
is *sent* from `send` until `recv` hands out its result, and nothing else may be asked of it then.
"""

from __future__ import annotations

import functools
import logging
import operator
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.engine.actions import ActionWriter
from shoal.engine.backends import Backend, Terms
from shoal.engine.batch import Batch
from shoal.engine.commands import (
    Assignment,
    Built,
    Call,
    Command,
    Factory,
    PlanReset,
    Reply,
    Reset,
    ResetArgs,
    SetAttr,
    Step,
)
from shoal.engine.compare import SameSpace, compare
from shoal.engine.crew import CLOSE_TIMEOUT_S, Crew
from shoal.engine.infos import ColumnSpec
from shoal.engine.results import Reader
from shoal.engine.rows import RowShape
from shoal.errors import ClosedError, ContractError, ShoalError, WorkerDied, WorkerTimeout
from shoal.layout import Array, Layout
from shoal.seeding import Seed

log = logging.getLogger("shoal")

ResetPlan = Mapping[int, tuple[Seed, dict[str, Any] | None]]
"""Seed and options for the reset of each of some environments."""
ResetResults = tuple[Any, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What a pool is made of."""

    factories: Sequence[Factory]
    one_each: bool
    """Whether there is a factory for each environment, or a single one for all."""
    num_envs: int
    num_workers: int
    terms: Terms
    copy: bool = True
    strict_actions: bool = True
    """Whether actions must fit their space; if not, they reach the environments as they are."""
    same_observation_space: SameSpace = operator.eq

    def assignments(self) -> list[Assignment]:
        """Contiguous blocks, as even as possible."""
        shares = [
            Assignment(k, self.num_workers, self.num_envs, self.factories, self.one_each)
            for k in range(self.num_workers)
        ]
        if not self.one_each:
            return shares
        blocks = [slice(share.block().start, share.block().stop) for share in shares]
        mine = [self.factories[block] for block in blocks]
        return [replace(share, factories=own) for share, own in zip(shares, mine, strict=True)]


@dataclass(slots=True)
class Flight:
    """A command that a worker is at."""

    env_ids: Sequence[int]
    """The environments it was sent to step; empty for anything that is not `send`."""
    landed: bool = False
    death: ShoalError | None = None


P = ParamSpec("P")
R = TypeVar("R")


def exclusive(method: Callable[Concatenate[Pool, P], R]) -> Callable[Concatenate[Pool, P], R]:
    """One call at a time: a second thread gets an error instead of another's answer."""

    @functools.wraps(method)
    def alone(self: Pool, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._busy.acquire(blocking=False):
            raise ContractError(
                f"{method.__name__}: another thread is using these environments at this moment. "
                "Let one thread at a time use them."
            )
        try:
            return method(self, *args, **kwargs)
        finally:
            self._busy.release()

    return alone


class Pool:
    """Environments, their workers and their rows."""

    def __init__(self, plan: PoolPlan, make_backend: Callable[[Terms], Backend]) -> None:
        begun = time.perf_counter()
        self.plan, self.num_envs, self._pid = plan, plan.num_envs, os.getpid()
        self.backend = make_backend(plan.terms)
        crew = Crew(self.backend)
        self._crew, self._finalizer = crew, weakref.finalize(self, crew.close)
        try:
            self.workers = crew.start(plan.assignments())
            self._meet([worker.built() for worker in self.workers])
        except BaseException:
            self._finalizer()
            raise
        self._prepare()
        self.opened = time.perf_counter()
        self.start_s = self.opened - begun

    def _meet(self, built: Sequence[Built]) -> None:
        """Learn the spaces from the workers' environments and give everyone rows."""
        self.first, self._together = built[0], max(max(one.widths) for one in built)
        self._blocks = [one.block for one in built]
        self.observation_spaces = [pair[0] for one in built for pair in one.spaces]
        self.single_observation_space, self.single_action_space = built[0].spaces[0]
        env_id = 0
        for one in built:
            for (observation, action), width in zip(one.spaces, one.widths, strict=True):
                same = self.plan.same_observation_space
                compare("observation", self.single_observation_space, observation, env_id, same)
                compare("action", self.single_action_space, action, env_id, operator.eq)
                env_id += width
        shape = RowShape(
            num_envs=self.num_envs,
            slots=1 if self.plan.copy else 2,
            observation=Layout(self.single_observation_space),
            action=Layout(self.single_action_space),
            keeps_finals=self.plan.terms.autoreset is AutoresetMode.SAME_STEP,
        )
        self.rows = self.backend.make_rows(shape)

    def _prepare(self) -> None:
        workers = range(len(self._blocks))
        self._owner = np.repeat(workers, [len(block) for block in self._blocks])
        self._reader = Reader(self.rows, self.plan.copy)
        self.tally, self.wait_s = self._reader.tally, 0.0
        self._actions = ActionWriter(self.rows, strict=self.plan.strict_actions)
        self._action_objects: dict[int, Any] = {}
        self._slot, self._exposed = 0, False
        self._steps = [Step(slot) for slot in range(self.rows.shape.slots)]
        self._resets_next = np.zeros(self.num_envs, dtype=np.bool_)
        self._reset_ids: list[int] | None = None
        self._news: list[list[ColumnSpec]] = [[] for _ in workers]
        self._begun = 0.0
        self._flights: list[Flight | None] = [None for _ in workers]
        self._queued: list[list[int]] = [[] for _ in workers]
        self._sent = np.zeros(self.num_envs, dtype=np.bool_)
        self._ready = np.zeros(self.num_envs, dtype=np.bool_)
        self._num_sent = 0
        self._troubles: list[Exception] = []
        self._busy = threading.Lock()
        self._noted: set[str] = set()

    # --- all together: start, finish, read --------------------------------------------------

    @exclusive
    def step(self, actions: Any) -> Batch:
        """One step of every environment."""
        self.start_step(actions)
        self.finish()
        return self.step_results()

    def start_step(self, actions: Any) -> None:
        """Begin a step of every environment; `finish`, then `step_results`, end it."""
        self._check_idle(None, "step")
        objects = self._actions.write(None, actions, self._resets_next)
        self._turn_slot()
        self._start({k: self._step_command(k, None, objects) for k in range(len(self.workers))})

    def step_results(self, env_ids: Sequence[int] | None = None) -> Batch:
        """What the step that was finished last has come to."""
        self._exposed = self._exposed or env_ids is None
        results = self._reader.collect(self._slot, env_ids)
        if self.plan.terms.autoreset is AutoresetMode.NEXT_STEP:
            ended = results.terminations | results.truncations
            self._resets_next[slice(None) if env_ids is None else env_ids] = ended
        return results

    @exclusive
    def reset(self, plan: ResetPlan, env_ids: Sequence[int] | None = None) -> ResetResults:
        """Reset these environments now; what all of them, or `env_ids`, look like then."""
        self.start_reset(plan)
        self.finish()
        return self.reset_results(env_ids)

    def start_reset(self, plan: ResetPlan) -> None:
        """Begin to reset these environments; `finish`, then `reset_results`, end it."""
        ids = list(plan)
        self._check_idle(ids, "reset")
        self._turn_slot(keep=len(ids) < self.num_envs)
        for array in (self.rows.rewards, self.rows.terminations, self.rows.truncations):
            array[self._slot, ids] = 0
        self._resets_next[ids] = False
        self._reset_ids = ids if len(ids) < self.num_envs else None
        parts = self._by_worker({i: ResetArgs(*how) for i, how in plan.items()})
        self._start({index: Reset(self._slot, part) for index, part in parts.items()})

    def reset_results(self, env_ids: Sequence[int] | None = None) -> ResetResults:
        """What the reset that was finished last has come to.

        Observations of all environments and infos of those that were reset; or observations and
        infos of these environments, in this order.
        """
        self._exposed = self._exposed or env_ids is None
        only = self._reset_ids if env_ids is None else None
        return self._reader.observe(self._slot, env_ids), self._reader.infos(env_ids, only)

    @exclusive
    def plan_reset(self, plan: ResetPlan) -> None:
        """What the next automatic reset of these environments uses, once."""
        self._check_idle(list(plan), "set_next_reset")
        parts = self._by_worker({i: ResetArgs(*how) for i, how in plan.items()})
        self._start({index: PlanReset(part) for index, part in parts.items()})
        self.finish()

    @exclusive
    def call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], env_ids: Sequence[int]
    ) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of each of these environments."""
        self.start_call(name, args, kwargs, env_ids)
        results = self.finish()
        return tuple(results[env_id] for env_id in env_ids)

    def start_call(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], env_ids: Sequence[int]
    ) -> None:
        """Begin a call; `finish` gives its results by env id."""
        self._check_idle(env_ids, name)
        parts = self._by_worker(dict.fromkeys(env_ids))
        self._start({i: Call(name, args, kwargs, list(part)) for i, part in parts.items()})

    @exclusive
    def set_attr(self, name: str, values: dict[int, Any]) -> None:
        """Set an attribute of environments, each to its own value."""
        self._check_idle(list(values), "set_attr")
        self._start({i: SetAttr(name, part) for i, part in self._by_worker(values).items()})
        self.finish()

    def _start(self, commands: dict[int, Command]) -> None:
        """Hand commands to workers, after what these are at; to all of them or to none."""
        self._settle()
        for index in commands:
            if self._flights[index] is not None:
                self._land(index)
        self._begun = time.perf_counter()
        for index, command in commands.items():
            try:
                self._launch(index, command, ())
            except BaseException:
                self._settle()
                raise

    def await_started(self, timeout_s: float | None) -> bool:
        """Whether all workers have answered, waiting at most so long."""
        deadline = None if timeout_s is None else time.perf_counter() + timeout_s
        for index, flight in enumerate(self._flights):
            if flight is None or flight.env_ids or flight.landed:
                continue
            left = None if deadline is None else max(0.0, deadline - time.perf_counter())
            if not self._has_answered(index, left):
                return False
        return True

    def finish(self) -> dict[int, Any]:
        """Wait for the answers and take all of them; then raise what went wrong, if anything.

        Returns the results of calls.
        """
        results: dict[int, Any] = {}
        for index, flight in enumerate(self._flights):
            if flight is not None and not flight.env_ids:
                reply = self._land(index)
                if reply is not None:
                    results.update(reply.results)
                if self._queued[index]:
                    self._dispatch(index)
        self.wait_s += time.perf_counter() - self._begun
        if self._troubles:
            self._reader.forget()
            self._raise_troubles()
        return results

    def _settle(self) -> None:
        """Take, and forget, the answers to a call that was interrupted before it was finished."""
        left = [i for i, flight in enumerate(self._flights) if flight and not flight.env_ids]
        for index in left:
            self._land(index)
        if left:
            self._reader.forget()
            self._troubles.clear()

    # --- first come, first served -----------------------------------------------------------

    @exclusive
    def send(self, env_ids: Sequence[int], actions: Any) -> None:
        """Start steps of these environments; those of a busy worker follow when it is free."""
        self._check_idle(env_ids, "send")
        self._settle()
        if self._together > 1:
            self._check_together(env_ids)
        objects = self._actions.write(env_ids, actions, self._resets_next)
        self._action_objects.update(objects or {})
        self._turn_slot(keep=True)
        self._sent[list(env_ids)] = True
        self._num_sent += len(env_ids)
        for index, ids in self._by_worker(dict.fromkeys(env_ids)).items():
            self._queued[index].extend(ids)
            if self._flights[index] is None:
                self._dispatch(index)

    @exclusive
    def recv(self, min_envs: int | None, timeout_s: float | None) -> Batch:
        """Everything that is ready, once at least `min_envs` are; TimeoutError loses nothing."""
        self._check_open("recv")
        if self._num_sent == 0:
            raise ContractError("recv: nothing was sent. Call send(actions, env_ids) first.")
        min_envs = self._num_sent if min_envs is None else min_envs
        if not 1 <= min_envs <= self._num_sent:
            raise ContractError(
                f"recv: waiting for {min_envs} environments, but {self._num_sent} are outstanding. "
                f"Ask for 1 to {self._num_sent}."
            )
        begun = time.perf_counter()
        try:
            self._await_ready(min_envs, None if timeout_s is None else begun + timeout_s)
        finally:
            self.wait_s += time.perf_counter() - begun
        ids = np.flatnonzero(self._ready)
        self._ready[ids] = self._sent[ids] = False
        self._num_sent -= len(ids)
        return self.step_results(ids.tolist())

    def outstanding(self) -> Array:
        """Ids of the environments that were sent and not received."""
        return np.flatnonzero(self._sent)

    def _await_ready(self, min_envs: int, deadline: float | None) -> None:
        while True:
            for index, flight in enumerate(self._flights):
                if flight is not None and self._has_answered(index, 0.0):
                    self._land(index)
                    self._dispatch(index)
            self._raise_troubles()
            if (ready := int(self._ready.sum())) >= min_envs:
                return
            left = 1.0 if deadline is None else deadline - time.perf_counter()
            if left <= 0:
                raise TimeoutError(
                    f"recv: {ready} of {min_envs} environments were ready in time. "
                    "Nothing is lost: call recv again."
                )
            self.backend.listen(left, self._any_answered)

    def _any_answered(self) -> bool:
        waiting = [k for k, flight in enumerate(self._flights) if flight is not None]
        return any(self._has_answered(index, 0.0) for index in waiting)

    def _dispatch(self, index: int) -> None:
        """Let an idle worker step whatever waits for it."""
        ids, block = self._queued[index], self._blocks[index]
        if not ids:
            return
        self._queued[index] = []
        self.rows.asked[block.start : block.stop] = False
        self.rows.asked[ids] = True
        waiting = self._action_objects
        objects = {i: waiting.pop(i) for i in ids if i in waiting} if waiting else None
        everyone = len(ids) == len(block)
        command = self._step_command(index, None if everyone else ids, objects)
        self._launch(index, command, ids)

    # --- one command at a time per worker ---------------------------------------------------

    def _launch(self, index: int, command: Command, sent: Sequence[int]) -> None:
        self.workers[index].put(command)
        self._flights[index] = Flight(sent)

    def _has_answered(self, index: int, timeout_s: float | None) -> bool:
        """Whether a worker has answered, or never will: then, too, it can be landed."""
        flight = self._flights[index]
        assert flight is not None
        if not flight.landed:
            try:
                flight.landed = self.workers[index].wait(timeout_s)
            except ShoalError as death:
                flight.landed, flight.death = True, death
        return flight.landed

    def _land(self, index: int) -> Reply | None:
        """Wait for a worker's answer and take it; what went wrong is kept for later."""
        self._has_answered(index, None)
        flight, self._flights[index] = self._flights[index], None
        assert flight is not None
        reply: Reply | None = None
        lost: set[int] = set()
        try:
            if flight.death is not None:
                raise flight.death
            reply = self.workers[index].take()
        except Exception as trouble:
            self._troubles.append(trouble)
            self._queued[index] = []
            lost = set(self._blocks[index]) & set(self.outstanding().tolist())
        if reply is not None:
            self._absorb(index, reply)
            lost = {env_id for failure in reply.failures for env_id in failure.env_ids}
        if flight.env_ids:
            self._ready[[env_id for env_id in flight.env_ids if env_id not in lost]] = True
        given_up = [env_id for env_id in lost if self._sent[env_id]]
        if given_up:
            self._sent[given_up] = self._ready[given_up] = False
            self._num_sent -= len(given_up)
        return reply

    # --- inside -----------------------------------------------------------------------------

    def _turn_slot(self, *, keep: bool = False) -> None:
        """The next results go elsewhere, if the caller has views of the last ones.

        `keep` takes the rows along, where not all of them will be written anew.
        """
        if not self._exposed or self._num_sent or self.rows.shape.slots == 1:
            return  # what is under way was told where to write
        old, new = self._slot, (self._slot + 1) % self.rows.shape.slots
        self._slot, self._exposed = new, False
        if keep:
            flags = (self.rows.rewards, self.rows.terminations, self.rows.truncations)
            for array in flags:
                array[new] = array[old]
            rings = zip(self.rows.observations[old], self.rows.observations[new], strict=True)
            for source, target in rings:
                target[...] = source

    def _step_command(
        self, index: int, env_ids: Sequence[int] | None, objects: dict[int, Any] | None
    ) -> Step:
        news = self._news[index]
        if env_ids is None and not news and objects is None:
            return self._steps[self._slot]
        self._news[index] = []
        if objects is not None:
            objects = {i: objects[i] for i in self._blocks[index] if i in objects}
        return Step(self._slot, env_ids is None, tuple(news), objects)

    def _absorb(self, index: int, reply: Reply) -> None:
        columns = self._reader.absorb(reply)
        for news in self._news:
            news.extend(columns)
        for key, text in reply.notes.items():
            if key not in self._noted:
                self._noted.add(key)
                log.warning("%s", text)
        pid = self.workers[index].pid
        self._troubles += [failure.as_error(index, pid) for failure in reply.failures]

    def _raise_troubles(self) -> None:
        """Raise the first of what went wrong, with the others told beside it."""
        if not self._troubles:
            return
        # A lost worker is the graver news; sorting is stable, so else the lowest env comes first.
        first, *others = sorted(self._troubles, key=lambda one: not isinstance(one, _DEATHS))
        self._troubles = []
        for other in others:
            first.add_note(f"At the same time: {other}")
        if isinstance(first, ShoalError):
            first.others = others
        raise first

    def _by_worker(self, values: dict[int, Any]) -> dict[int, dict[int, Any]]:
        parts: dict[int, dict[int, Any]] = {}
        for env_id, value in values.items():
            parts.setdefault(int(self._owner[env_id]), {})[env_id] = value
        return parts

    def _check_open(self, what: str) -> None:
        if self.closed:
            raise ClosedError(f"{what}: these environments are closed. Make new ones.")
        if os.getpid() != self._pid:
            raise ContractError(
                f"{what}: these environments belong to process {self._pid}; this is a fork of it. "
                "Make new ones here."
            )

    def _check_idle(self, env_ids: Sequence[int] | None, what: str) -> None:
        self._check_open(what)
        if not self._num_sent:
            return
        busy = self.outstanding() if env_ids is None else np.asarray(env_ids)[self._sent[env_ids]]
        if len(busy):
            raise ContractError(
                f"{what}: environments {_some(busy.tolist())} were sent and not received yet. "
                "Receive them first."
            )

    def _check_together(self, env_ids: Sequence[int]) -> None:
        starts = {env_id - env_id % self._together for env_id in env_ids}
        expected = {start + k for start in starts for k in range(self._together)}
        if expected != set(env_ids):
            raise ContractError(
                f"send: environments {_some(sorted(expected - set(env_ids)))} are in one vector "
                "environment with others that were given, and step together with them."
            )

    # --- about itself -----------------------------------------------------------------------

    def local_envs(self) -> list[Any]:
        """The environments themselves, where they live in this process."""
        return [env for worker in self.workers for env in worker.local_envs()]

    def busy_fractions(self) -> list[float]:
        """The share of its life that each worker has spent executing commands."""
        alive_ns = (time.perf_counter() - self.opened) * 1e9
        return [worker.busy_ns() / alive_ns for worker in self.workers]

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self, timeout_s: float | None = None) -> None:
        """Ask, wait, then insist. Safe to call twice."""
        self._crew.timeout_s = CLOSE_TIMEOUT_S if timeout_s is None else timeout_s
        self._finalizer()


_DEATHS = (WorkerDied, WorkerTimeout)


def _some(env_ids: Iterable[int]) -> str:
    ids = list(env_ids)
    return ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
