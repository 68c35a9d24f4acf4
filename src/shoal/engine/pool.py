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
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.engine.actions import ActionWriter
from shoal.engine.backends import Backend, Terms, Worker
from shoal.engine.batch import Batch
from shoal.engine.commands import (
    Assignment,
    Attach,
    Build,
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
from shoal.engine.compare import SameSpace, check_spaces
from shoal.engine.crew import CLOSE_TIMEOUT_S, Crew
from shoal.engine.journal import Journal
from shoal.engine.results import Reader
from shoal.engine.rows import RowShape
from shoal.engine.seat import Flight, Seat
from shoal.engine.slots import Slots
from shoal.engine.supervisor import Policy, Site, Supervisor
from shoal.errors import (
    ClosedError,
    ContractError,
    ShoalError,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from shoal.layout import Array, Layout
from shoal.seeding import Seed

log = logging.getLogger("shoal")

ResetPlan = Mapping[int, tuple[Seed, dict[str, Any] | None]]
"""Seed and options for the reset of each of some environments."""
ResetResults = tuple[Any, dict[str, Any]]
_LOOK_AROUND_S = 0.02
"""How long to wait for one worker before looking after the others."""


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
    policy: Policy = field(default_factory=Policy)

    def shares(self) -> list[Assignment]:
        """Contiguous blocks, as even as possible."""
        return [self._share(worker) for worker in range(self.num_workers)]

    def _share(self, worker: int) -> Assignment:
        share = Assignment(worker, self.num_workers, self.num_envs, self.factories, self.one_each)
        return self.assign(worker, share.ids()) if self.one_each else share

    def assign(self, worker: int, env_ids: Sequence[int]) -> Assignment:
        """These very environments."""
        factories = [self.factories[i] for i in env_ids] if self.one_each else self.factories
        return Assignment(
            worker, self.num_workers, self.num_envs, factories, self.one_each, env_ids
        )


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
            self._open()
        except BaseException:
            self._finalizer()
            raise
        self.opened = time.perf_counter()
        self.start_s = self.opened - begun

    def _open(self) -> None:
        """Start workers, learn the spaces from their environments and give everyone rows."""
        builds = [Build(share) for share in self.plan.shares()]
        workers = self._crew.launch(builds)
        self.seats = [Seat(k, worker, ()) for k, worker in enumerate(workers)]
        built = [self._first_answer(seat).built for seat in self.seats]
        self._meet([one for one in built if one is not None])
        for seat in self.seats:
            seat.worker.put(Attach(self.rows))
        for seat in self.seats:
            self._first_answer(seat)
        self._prepare()

    def _first_answer(self, seat: Seat) -> Reply:
        limit_s = self.plan.terms.start_timeout_s
        # A process that is late is ended by its own end of the wait; a thread cannot be.
        if not seat.worker.wait(None if self.backend.loses_workers else limit_s):
            raise WorkerTimeout(
                f"worker {seat.index} has not built its environments within {limit_s} s. "
                "Raise start_timeout_s if they need longer.",
                worker=seat.index,
                phase="construct",
            )
        reply = seat.worker.take() or Reply()
        for failure in reply.failures:
            raise failure.as_error(seat.index, seat.worker.pid)
        self._tell_notes(reply)
        return reply

    def _meet(self, built: Sequence[Built]) -> None:
        self.first, self._together = built[0], max(max(one.widths) for one in built)
        self.observation_spaces = [pair[0] for one in built for pair in one.spaces]
        self.single_observation_space, self.single_action_space = built[0].spaces[0]
        self._check_spaces = functools.partial(
            check_spaces, built[0].spaces[0], self.plan.same_observation_space
        )
        for seat, one in zip(self.seats, built, strict=True):
            seat.env_ids = one.env_ids
            self._check_spaces(one)
        self._owner = np.repeat(range(len(built)), [len(one.env_ids) for one in built])
        shape = RowShape(
            num_envs=self.num_envs,
            slots=2 if self._needs_two_slots() else 1,
            observation=Layout(self.single_observation_space),
            action=Layout(self.single_action_space),
            keeps_finals=self.plan.terms.autoreset is AutoresetMode.SAME_STEP,
        )
        self.rows = self.backend.make_rows(shape)

    def _needs_two_slots(self) -> bool:
        policy = self.plan.policy
        may_lose = policy.on_failure != "raise" and self.backend.loses_workers
        return not self.plan.copy or may_lose or policy.on_error != "raise"

    def _prepare(self) -> None:
        self._reader = Reader(self.rows, self.plan.copy)
        self.tally, self.wait_s = self._reader.tally, 0.0
        self._actions = ActionWriter(self.rows, strict=self.plan.strict_actions)
        self._action_objects: dict[int, Any] = {}
        self._slots = Slots(self.rows)
        self._journal = Journal(self.rows, self.plan.policy.replay_limit_steps)
        self.supervisor = Supervisor(
            self.plan.policy,
            Site(
                self._crew,
                self.rows,
                self._reader,
                self._journal,
                self._slots,
                self.plan.assign,
                self._check_spaces,
                self.backend.loses_workers,
            ),
        )
        self._steps = [Step(slot) for slot in range(self.rows.shape.slots)]
        self._resets_next = np.zeros(self.num_envs, dtype=np.bool_)
        self._any_resets_next = False
        self._reset_ids: list[int] | None = None
        self._begun = 0.0
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
        self._settle()
        objects = self._actions.write(None, actions, self._resets_next)
        slot = self._slots.next_for_all()
        commands = [(seat, self._step_command(seat, slot, objects)) for seat in self.seats]
        self._start(commands)

    def step_results(self, env_ids: Sequence[int] | None = None) -> Batch:
        """What the step that was finished last has come to."""
        return self._reader.collect(self._slots.of(env_ids), env_ids)

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
        self._settle()
        self._free(self.seats[k] for k in set(self._owner[ids]))  # who may have been restarted
        self._reset_ids = ids if len(ids) < self.num_envs else None
        args = {i: self._journal.explicit(i, ResetArgs(*how)) for i, how in plan.items()}
        self._journal.note_seeds(plan)
        turning = self._whole_groups(ids)
        if self._reset_ids is None:
            slots = dict.fromkeys(ids, self._slots.next_for_all())
        else:
            slots = dict(zip(turning, self._slots.next_for(turning), strict=True))
        self._start(
            [
                (seat, Reset(part, {i: slots[i] for i in seat.env_ids if i in slots}))
                for seat, part in self._by_seat(args)
            ]
        )

    def reset_results(self, env_ids: Sequence[int] | None = None) -> ResetResults:
        """What the reset that was finished last has come to.

        Observations of all environments and infos of those that were reset; or observations and
        infos of these environments, in this order.
        """
        only = self._reset_ids if env_ids is None else None
        infos = self._reader.infos(env_ids, only)
        if env_ids is None and not self._num_sent:
            return self._reader.observe(self._slots.together(), None), infos
        ids = range(self.num_envs) if env_ids is None else env_ids  # some are being written
        return self._reader.observe(self._slots.of(list(ids)), list(ids)), infos

    @exclusive
    def plan_reset(self, plan: ResetPlan) -> None:
        """What the next automatic reset of these environments uses, once."""
        self._check_idle(list(plan), "set_next_reset")
        args = {i: ResetArgs(*how) for i, how in plan.items()}
        self._start([(seat, PlanReset(part)) for seat, part in self._by_seat(args)])
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
        parts = self._by_seat(dict.fromkeys(env_ids))
        self._start([(seat, Call(name, args, kwargs, list(part))) for seat, part in parts])

    @exclusive
    def set_attr(self, name: str, values: dict[int, Any]) -> None:
        """Set an attribute of environments, each to its own value."""
        self._check_idle(list(values), "set_attr")
        self._start([(seat, SetAttr(name, part)) for seat, part in self._by_seat(values)])
        self.finish()

    def _start(self, commands: Sequence[tuple[Seat, Command]]) -> None:
        """Hand commands to workers, after what these are at; to all of them or to none."""
        self._settle()
        self._free(seat for seat, _ in commands)
        self._begun = time.perf_counter()
        for seat, command in commands:
            try:
                self._launch(seat, command)
            except BaseException:
                self._settle()
                raise

    def _free(self, seats: Iterable[Seat]) -> None:
        """Wait for what these are at, and land it."""
        for seat in seats:
            if seat.flight is not None:
                self._has_answered(seat, None)
                self._land(seat)

    def await_started(self, timeout_s: float | None) -> bool:
        """Whether all workers have answered, waiting at most so long."""
        deadline = None if timeout_s is None else time.perf_counter() + timeout_s
        for seat in self._started():
            left = None if deadline is None else max(0.0, deadline - time.perf_counter())
            if not self._has_answered(seat, left):
                return False
        return True

    def finish(self) -> dict[int, Any]:
        """Wait for the answers and take all of them; then raise what went wrong, if anything.

        Returns the results of calls.
        """
        results = self._finish()
        self.wait_s += time.perf_counter() - self._begun
        if self._troubles:
            self._reader.forget()
            self._raise_troubles()
        return results

    def _settle(self) -> None:
        """Take, and forget, the answers to a call that was interrupted before it was finished."""
        if self._started():
            self._finish()
            self._reader.forget()
            self._troubles.clear()

    def _started(self) -> list[Seat]:
        """Seats whose flights belong to a call for all, not to `send`."""
        return [seat for seat in self.seats if seat.flight is not None and not seat.flight.sent]

    def _finish(self) -> dict[int, Any]:
        seats, results = self._started(), {}
        for k, seat in enumerate(seats):
            while not self._has_answered(seat, _LOOK_AROUND_S):
                for other in seats[k + 1 :]:
                    self._has_answered(other, 0.0)
        landed = [(seat, self._land(seat)) for seat in seats]
        for seat, flight in landed:
            for reply in flight.replies:
                results.update(reply.results)
            if seat.queued:
                self._dispatch(seat)
        self._record(landed)
        return results

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
        self._sent[list(env_ids)] = True
        self._num_sent += len(env_ids)
        for seat, ids in self._by_seat(dict.fromkeys(env_ids)):
            seat.queued.extend(ids)
            if seat.flight is None:
                self._dispatch(seat)

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
            for seat in self.seats:
                if seat.flight is not None and self._has_answered(seat, 0.0):
                    self._land(seat)
                    self._dispatch(seat)
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
        flying = [seat for seat in self.seats if seat.flight is not None]
        return any(self._has_answered(seat, 0.0) for seat in flying)

    def _dispatch(self, seat: Seat) -> None:
        """Let an idle worker step whatever waits for it."""
        ids = seat.queued
        if not ids:
            return
        seat.queued = []
        slots = self._slots.next_for(ids)
        self.rows.asked[list(seat.env_ids)] = 0
        self.rows.asked[ids] = [1 + slot for slot in slots]
        waiting = self._action_objects
        objects = {i: waiting.pop(i) for i in ids if i in waiting} if waiting else None
        everyone = len(ids) == len(seat.env_ids) and len(set(slots)) == 1
        self._launch(seat, self._step_command(seat, slots[0], objects, everyone), ids)

    # --- one command at a time per worker ---------------------------------------------------

    def _launch(self, seat: Seat, command: Command, sent: Sequence[int] = ()) -> None:
        seat.worker.put(command)
        seat.flight = Flight(command, sent)

    def _has_answered(self, seat: Seat, timeout_s: float | None) -> bool:
        """Whether a worker has answered, or never will: then, too, it can be landed.

        Whatever can be done about a death or a failure is done on the way.
        """
        flight = seat.flight
        assert flight is not None
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not flight.landed:
            if flight.recovery is None:
                if not self._look(seat, flight, timeout_s):
                    return False
                continue
            seat.patience_s = (
                _LOOK_AROUND_S if timeout_s is None else min(timeout_s, _LOOK_AROUND_S)
            )
            self._carry_on(seat, flight)
            if deadline is not None and time.monotonic() >= deadline:
                return flight.landed
        return True

    def _look(self, seat: Seat, flight: Flight, timeout_s: float | None) -> bool:
        """Wait for a worker's answer and take it."""
        try:
            if not seat.worker.wait(timeout_s):
                return False
            reply = seat.worker.take()
        except WorkerError as death:
            flight.start_over()
            flight.recovery, flight.cause = self.supervisor.recover(seat, death), death
            return True
        except Exception as trouble:
            flight.trouble, flight.landed = trouble, True
            return True
        if reply is not None:
            flight.replies.append(reply)
            if reply.failures:
                flight.recovery = self.supervisor.mend(seat, reply)
        flight.landed = flight.recovery is None
        return True

    def _carry_on(self, seat: Seat, flight: Flight) -> None:
        """Let a recovery go on for a while."""
        assert flight.recovery is not None
        try:
            next(flight.recovery)
        except StopIteration:
            flight.recovery = None
        except Exception as trouble:
            flight.trouble, flight.landed = trouble, True
        except BaseException:  # Ctrl-C: what is half rebuilt is rebuilt once more
            flight.start_over()
            interrupted = flight.cause or WorkerDied(
                f"the restart of worker {seat.index} was interrupted.", worker=seat.index
            )
            flight.recovery = self.supervisor.recover(seat, interrupted)
            raise

    def _land(self, seat: Seat) -> Flight:
        """Take what a worker has answered; what went wrong is kept for later."""
        flight, seat.flight = seat.flight, None
        assert flight is not None
        if flight.trouble is not None:
            self._troubles.append(flight.trouble)
            if not flight.failed:  # the worker itself is lost
                seat.queued, flight.failed = [], set(seat.env_ids)
        else:
            seat.failures = 0
        for reply in flight.replies:
            self._absorb(seat, reply)
            flight.failed.update(i for failure in reply.failures for i in failure.env_ids)
        if flight.sent:
            self._record([(seat, flight)])
            self._ready[[i for i in flight.sent if i not in flight.failed]] = True
        given_up = [env_id for env_id in flight.failed if self._sent[env_id]]
        if given_up:
            self._sent[given_up] = self._ready[given_up] = False
            self._num_sent -= len(given_up)
        return flight

    # --- keeping the books ------------------------------------------------------------------

    def _record(self, landed: Sequence[tuple[Seat, Flight]]) -> None:
        """Write down what environments have done, unless it failed."""
        stepped: list[int] = []
        objects: dict[int, Any] = {}
        for seat, flight in landed:
            command, failed = flight.command, flight.failed
            if type(command) is Step:
                ids = flight.sent or seat.env_ids
                stepped += [i for i in ids if i not in failed] if failed else ids
                objects.update(command.objects or {})
            elif type(command) is Reset:
                self._record_reset(command, failed)
            elif type(command) is SetAttr:
                values = {i: v for i, v in command.values.items() if i not in failed}
                self._journal.set_attr(command.name, values)
            elif type(command) is PlanReset:
                self._journal.plan({i: a for i, a in command.args.items() if i not in failed})
        if stepped:
            everyone = len(stepped) == self.num_envs and not landed[0][1].sent
            self._record_step(None if everyone else stepped, objects)

    def _record_reset(self, command: Reset, failed: set[int]) -> None:
        done = [env_id for env_id in command.args if env_id not in failed]
        if len(done) == self.num_envs:
            self._slots.turn_all()
        else:
            self._slots.turn([env_id for env_id in command.slots if env_id not in failed])
        self._journal.begin(done, command.args)
        self.supervisor.was_reset(done)
        self._resets_next[done] = False

    def _record_step(self, env_ids: Sequence[int] | None, objects: dict[int, Any]) -> None:
        journal, rows, ids = self._journal, self.rows, slice(None) if env_ids is None else env_ids
        if env_ids is None:
            self._slots.turn_all()
        else:
            self._slots.turn(env_ids)
        slots = self._slots.of(env_ids)
        ended = rows.terminations[slots, ids] | rows.truncations[slots, ids]
        if objects:
            journal.add_objects(objects)
        journal.add(env_ids, rows.rewards[slots, ids])
        mode = self.plan.terms.autoreset
        if self._any_resets_next:
            journal.begin(_chosen(self._resets_next[ids], env_ids))
        if mode is AutoresetMode.NEXT_STEP:
            self._resets_next[ids] = ended
        any_ended = bool(np.count_nonzero(ended))
        if any_ended:
            those = _chosen(ended, env_ids)
            if mode is AutoresetMode.SAME_STEP:
                journal.begin(those)
            else:
                journal.end(those)
            if self.supervisor.is_watching:
                self.supervisor.finished(those)
        if env_ids is None:
            self._any_resets_next = any_ended and mode is AutoresetMode.NEXT_STEP
        else:
            self._any_resets_next = bool(self._resets_next.any())

    def _absorb(self, seat: Seat, reply: Reply) -> None:
        columns = self._reader.absorb(reply)
        if columns:
            for other in self.seats:
                other.news.extend(columns)
        for env_id, state in reply.generators.items():
            self._journal.entries[env_id].odd_generator = state
        self._tell_notes(reply)
        errors = [failure.as_error(seat.index, seat.worker.pid) for failure in reply.failures]
        self._troubles += errors

    def _tell_notes(self, reply: Reply) -> None:
        for key, text in reply.notes.items():
            if key not in self._noted:
                self._noted.add(key)
                log.warning("%s", text)

    # --- inside -----------------------------------------------------------------------------

    def _step_command(
        self, seat: Seat, slot: int, objects: dict[int, Any] | None, everyone: bool = True
    ) -> Step:
        news = seat.news
        if everyone and not news and objects is None:
            return self._steps[slot]
        seat.news = []
        if objects is not None:
            objects = {i: objects[i] for i in seat.env_ids if i in objects}
        return Step(slot, everyone, tuple(news), objects)

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

    def _by_seat(self, values: dict[int, Any]) -> list[tuple[Seat, dict[int, Any]]]:
        parts: dict[int, dict[int, Any]] = {}
        for env_id, value in values.items():
            parts.setdefault(int(self._owner[env_id]), {})[env_id] = value
        return [(self.seats[index], part) for index, part in parts.items()]

    def _whole_groups(self, env_ids: Sequence[int]) -> Sequence[int]:
        """These environments, and all that are in one vector environment with any of them."""
        if self._together == 1:
            return env_ids
        starts = dict.fromkeys(env_id - env_id % self._together for env_id in env_ids)
        return [start + k for start in starts for k in range(self._together)]

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
        missing = sorted(set(self._whole_groups(env_ids)) - set(env_ids))
        if missing:
            raise ContractError(
                f"send: environments {_some(missing)} are in one vector environment with others "
                "that were given, and step together with them."
            )

    # --- about itself -----------------------------------------------------------------------

    @property
    def workers(self) -> list[Worker]:
        """Those who sit here now."""
        return [seat.worker for seat in self.seats]

    def local_envs(self) -> list[Any]:
        """The environments themselves, where they live in this process."""
        return [env for worker in self.workers for env in worker.local_envs()]

    def busy_fractions(self) -> list[float]:
        """The share of its life that each worker has spent executing commands."""
        alive_ns = (time.perf_counter() - self.opened) * 1e9
        return [(seat.spent_ns + seat.worker.busy_ns()) / alive_ns for seat in self.seats]

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self, timeout_s: float | None = None) -> None:
        """Ask, wait, then insist. Safe to call twice."""
        self._crew.timeout_s = CLOSE_TIMEOUT_S if timeout_s is None else timeout_s
        self._finalizer()


_DEATHS = (WorkerDied, WorkerTimeout)


def _chosen(mask: Array, env_ids: Sequence[int] | None) -> list[int]:
    """The environments that a mask over `env_ids` (None: all) says."""
    positions = np.flatnonzero(mask)
    return (positions if env_ids is None else np.asarray(env_ids)[positions]).tolist()


def _some(env_ids: Iterable[int]) -> str:
    ids = list(env_ids)
    return ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
