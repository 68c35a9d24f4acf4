"""Pool: routes actions to workers and hands back batches. One class, whatever the backend.

Every vector environment that users hold is a thin presentation of a pool. A worker has one command
at a time, its *flight*; only steps that are sent may be put ahead of it (`post.py`). Every flight
is landed before anything is raised, so no answer is ever left for a later call to find.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, TypeVar

from gymnasium.vector import AutoresetMode

from shoal.engine import memento, moves, shelves, staff
from shoal.engine.backends import CLOSE_TIMEOUT_S, Backend, Terms, Worker
from shoal.engine.batch import Batch
from shoal.engine.books import Books
from shoal.engine.branch import branch
from shoal.engine.commands import (
    Built,
    Call,
    Called,
    Command,
    PlanReset,
    Reply,
    Reset,
    ResetArgs,
    SetAttr,
    Step,
)
from shoal.engine.compare import check_spaces
from shoal.engine.crew import EXIT_TIMEOUT_S, Crew
from shoal.engine.journal import own_args
from shoal.engine.keep import kept_each
from shoal.engine.memento import Memento
from shoal.engine.plan import PoolPlan
from shoal.engine.post import Post
from shoal.engine.quick import Quick
from shoal.engine.recycle import recycle
from shoal.engine.resize import put_in_order, rearrange, resize
from shoal.engine.results import Results, Tally
from shoal.engine.rows import Rows, RowShape
from shoal.engine.seat import Flight, Seat
from shoal.engine.supervisor import Supervisor, has_acted
from shoal.engine.traffic import Traffic
from shoal.errors import (
    ClosedError,
    ConfigError,
    ContractError,
    ShoalError,
    WorkerDied,
    WorkerTimeout,
)
from shoal.layout import Array, Layout
from shoal.seeding import Seed

log = logging.getLogger("shoal")

ResetPlan = Mapping[int, tuple[Seed, dict[str, Any] | None]]
"""Seed and options for the reset of each of some environments."""
ResetResults = tuple[Any, dict[str, Any]]


P = ParamSpec("P")
R = TypeVar("R")


def exclusive(method: Callable[Concatenate[Pool, P], R]) -> Callable[Concatenate[Pool, P], R]:
    """One call at a time: a second thread gets an error instead of another's answer."""

    @functools.wraps(method)
    def alone(self: Pool, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if not self._busy.acquire(False) and not self._after_counting():
            name = method.__name__.lstrip("_")
            raise ContractError(
                f"{name}: another thread is using these environments at this moment. "
                "Let one thread at a time use them."
            )
        try:
            return method(self, *args, **kwargs)
        except Exception:
            raise
        except BaseException:
            self._is_in_order = self.quick.is_ready = False
            raise
        finally:
            self._busy.release()

    return alone


class Pool:
    """Environments, their workers and their rows."""

    exit_timeout_s = EXIT_TIMEOUT_S

    def __init__(self, plan: PoolPlan, make_backend: Callable[[Terms], Backend]) -> None:
        begun = time.perf_counter()
        self.plan, self.num_envs, self._pid = plan, plan.num_envs, os.getpid()
        self._noted: set[str] = set()
        self.quick = Quick()
        self.seats: list[Seat] = []
        self.backend = make_backend(plan.terms)
        crew = Crew(self.backend)
        self.crew, self._finalizer = crew, weakref.finalize(self, crew.close)
        try:
            self._open()
        except BaseException as error:  # on Ctrl-C somebody waits
            self.close(None if isinstance(error, Exception) else self.exit_timeout_s)
            raise
        self.opened = time.perf_counter()
        self.start_s = self.opened - begun

    def _open(self) -> None:
        """Start workers, learn the spaces from their environments and give everyone rows."""
        rows = self._meet(staff.launch(self))
        staff.attach(self, rows)
        self._prepare(rows)

    def _meet(self, built: Sequence[Built]) -> Rows:
        self.first, self.together = built[0], max(max(one.widths) for one in built)
        self.observation_spaces = [pair[0] for one in built for pair in one.spaces]
        self.single_observation_space, self.single_action_space = built[0].spaces[0]
        self.check_spaces = functools.partial(
            check_spaces, built[0].spaces[0], self.plan.same_observation_space
        )
        if self.together > 1 and self.plan.policy.max_worker_rss_mb is not None:
            raise ConfigError(
                "max_worker_rss_mb: a worker is replaced by moving its environments, and those of "
                "a vector environment cannot be told apart. Leave it out."
            )
        for seat, one in zip(self.seats, built, strict=True):
            seat.env_ids = one.env_ids
            self.check_spaces(one)
        self.owner = [seat for seat in self.seats for _ in seat.env_ids]
        return self.make_rows(self.num_envs)

    def make_rows(self, num_envs: int) -> Rows:
        """Rows for so many environments of this kind."""
        shape = self._shape(num_envs)
        try:
            return self.backend.make_rows(shape)
        except ConfigError:  # too large: what only saves time is done without
            if not shape.blocks:
                raise
            return self.backend.make_rows(replace(shape, blocks=0))

    def _shape(self, num_envs: int) -> RowShape:
        """That of rows for so many environments."""
        plan, observation = self.plan, Layout(self.single_observation_space)
        pays = shelves.is_worth_it(observation, num_envs)
        if plan.num_workers == 1:
            is_large = shelves.is_worth_it_singly(observation, num_envs)
            pays = pays and is_large and not plan.pages
        return RowShape(
            num_envs=num_envs,
            slots=2,
            observation=observation,
            action=Layout(self.single_action_space),
            keeps_finals=plan.terms.autoreset is AutoresetMode.SAME_STEP,
            blocks=0 if not pays else 1 if plan.pages else shelves.AT_HAND if plan.copy else 0,
            shelves_per_block=plan.pages or 1,
        )

    def _prepare(self, rows: Rows) -> None:
        self.books = Books(self.plan, rows)
        self.supervisor = Supervisor(self.plan, self.crew, self.books, self.check_spaces)
        self._traffic = Traffic(self.supervisor)
        self._steps = [Step(slot) for slot in range(rows.shape.slots)]
        self._reset_ids: list[int] | None = None
        self.wait_s = self._begun = 0.0
        self.post = Post(self, self._traffic)
        self._troubles: list[Exception] = []
        self._busy = threading.RLock()  # whoever was interrupted while taking it may go on
        self._counting = threading.Lock()
        """Held by `tally` from before it takes the other one until after it has let go of it."""
        self.wishes: dict[int, Seat] = {}
        """Where environments are to move, between two of their episodes."""
        self.settled: set[int] = set()
        """Environments that cannot move."""
        self._is_in_order = True
        """Whether every worker has just the environments, rows and columns that it should have."""

    # --- all together: start, finish, read --------------------------------------------------

    def step(self, actions: Any, page: int | None = None) -> Results:
        """One step of every environment.

        Where there are pages, observations are put on this one; unless something else happens
        than steps: then they are what they always are.
        """
        if page is not None and not 0 <= page < self.plan.pages:
            raise ContractError(
                f"step_onto: there is no page {page}; there are {self.plan.pages}, counted from 0. "
                "make_pages makes them."
            )
        if self.quick.is_ready and self._busy.acquire(False):  # `exclusive`, written out
            begun, is_taken = time.perf_counter(), None
            try:
                is_taken = self.quick.step(actions, page)
                if is_taken:
                    self.wait_s += time.perf_counter() - begun
                    books, kept = self.books, self.books.shelves
                    laid = None if kept is None else kept.laid()
                    return books.reader.collect(books.slots.common, laid)
                if is_taken is not None:
                    return self._finish_step(begun)
            except BaseException as error:
                if is_taken is None or not isinstance(error, Exception):
                    self._is_in_order = self.quick.is_ready = False
                raise
            finally:
                self._busy.release()
        return self._step(actions)

    @exclusive
    def _step(self, actions: Any) -> Results:
        self._start_step(actions)
        return self._finish_step(self._begun)

    def _finish_step(self, begun: float) -> Results:
        self._begun = begun
        self._finish()
        if self._is_calm():
            self.quick.get_ready(self.seats, self.books, self.supervisor)
        return self.step_results()

    def _is_calm(self) -> bool:
        """Whether the next step may be taken without a thought about anything else."""
        return (
            self._is_in_order
            and not self.wishes
            and not any(seat.news for seat in self.seats)
            and self.plan.policy.max_worker_rss_mb is None
            and self.post.num_sent == 0
        )

    @exclusive
    def start_step(self, actions: Any) -> None:
        """Begin a step of every environment; `finish`, then `step_results`, end it."""
        self._start_step(actions)

    def _start_step(self, actions: Any) -> None:
        self._check_idle(None, "step")
        self._settle()
        objects = self.books.actions.write(None, actions, self.books.resets_next)
        slot = self.books.slots.next_for_all()
        if self.books.shelves is not None:
            self.books.shelves.clear()  # where the step before was to lay it may be held now
        at_work = [seat for seat in self.seats if seat.env_ids]
        self._start([(seat, self._step_command(seat, slot, objects)) for seat in at_work])

    def step_results(self) -> Results:
        """What the step that was finished last has come to."""
        return self.books.reader.collect(self.books.slots.common)

    @exclusive
    def reset(self, plan: ResetPlan, env_ids: Sequence[int] | None = None) -> ResetResults:
        """Reset these environments now; what all of them, or `env_ids`, look like then."""
        self._start_reset(plan)
        self._finish()
        return self.reset_results(env_ids)

    @exclusive
    def start_reset(self, plan: ResetPlan) -> None:
        """Begin to reset these environments; `finish`, then `reset_results`, end it."""
        self._start_reset(plan)

    def _start_reset(self, plan: ResetPlan) -> None:
        ids = list(plan)
        self._check_idle(ids, "reset")
        self._settle()
        self._free(dict.fromkeys(self.owner[i] for i in ids))  # who may have been restarted
        self._reset_ids = ids if len(ids) < self.num_envs else None
        args = {i: self.books.journal.explicit(i, ResetArgs(*how)) for i, how in plan.items()}
        self.books.journal.note_seeds(plan)
        turning = self._whole_groups(ids)
        if self._reset_ids is None:
            slots = dict.fromkeys(ids, self.books.slots.next_for_all())
        else:
            slots = dict(zip(turning, self.books.slots.next_for(turning), strict=True))
        self._start(
            [
                (seat, Reset(part, {i: slots[i] for i in seat.env_ids if i in slots}))
                for seat, part in self.by_seat(args)
            ]
        )

    def reset_results(self, env_ids: Sequence[int] | None = None) -> ResetResults:
        """What the reset that was finished last has come to.

        Observations of all environments and infos of those that were reset; or observations and
        infos of these environments, in this order.
        """
        only = self._reset_ids if env_ids is None else None
        infos = self.books.reader.infos(env_ids, only)
        if env_ids is None and not self.post.num_sent:
            return self.books.reader.observe(self.books.slots.together(), None), infos
        ids = range(self.num_envs) if env_ids is None else env_ids  # some are being written
        return self.books.reader.observe(self.books.slots.of(list(ids)), list(ids)), infos

    @exclusive
    def catch_up(self) -> ResetResults:
        """What all look like now, after a call that was broken off; what went wrong is raised."""
        self._check_open("catch_up")
        for seat in self.seats:
            seat.queued = []
        self.post.give_up(self.post.waiting())  # some of these may have been in that very step
        while self.post.num_sent:
            self.recv(1, None)
        self.books.catch_up(self.supervisor)
        self._land_started()
        if self._troubles:
            self._forget()
            self.raise_troubles()
        self._settle()
        if doubtful := self.books.resets_of_doubtful():
            self._start_reset(doubtful)
            self._finish()
        slot = self.books.slots.together()
        return self.books.reader.observe(slot, None), self.books.reader.infos(None)

    @exclusive
    def plan_reset(self, plan: ResetPlan) -> None:
        """What the next automatic reset of these environments uses, once."""
        self._check_idle(list(plan), "set_next_reset")
        self._settle()
        self._free(dict.fromkeys(self.owner[i] for i in plan))  # who may have been restarted
        args = {i: self.books.journal.explicit(i, ResetArgs(*how)) for i, how in plan.items()}
        args = own_args(args)  # the reset is still to come
        self._start([(seat, PlanReset(part)) for seat, part in self.by_seat(args)])
        self._finish()

    @exclusive
    def call(
        self, name: Called, args: tuple[Any, ...], kwargs: dict[str, Any], env_ids: Sequence[int]
    ) -> tuple[Any, ...]:
        """Call a method, or read an attribute, of each of these environments; or a function."""
        self._start_call(name, args, kwargs, env_ids)
        results = self._finish()
        return tuple(results[env_id] for env_id in env_ids)

    @exclusive
    def start_call(
        self, name: Called, args: tuple[Any, ...], kwargs: dict[str, Any], env_ids: Sequence[int]
    ) -> None:
        """Begin a call; `finish` gives its results by env id."""
        self._start_call(name, args, kwargs, env_ids)

    def _start_call(
        self, name: Called, args: tuple[Any, ...], kwargs: dict[str, Any], env_ids: Sequence[int]
    ) -> None:
        self._check_idle(env_ids, name if isinstance(name, str) else name.__name__)
        parts = self.by_seat(dict.fromkeys(env_ids))
        self._start([(seat, Call(name, args, kwargs, list(part))) for seat, part in parts])

    @exclusive
    def set_attr(self, name: str, values: dict[int, Any]) -> None:
        """Set an attribute of environments, each to its own value."""
        self._check_idle(list(values), "set_attr")
        parts = self.by_seat(values)
        if self.backend.loses_workers:  # where others get copies, the caller's own share does, too
            parts = [(one, kept_each(p) if one.worker.is_caller else p) for one, p in parts]
        self._start([(seat, SetAttr(name, part)) for seat, part in parts])
        self._finish()

    def _start(self, commands: Sequence[tuple[Seat, Command]]) -> None:
        """Hand commands to workers, after what these are at; to all of them or to none."""
        self._settle()
        self._free(seat for seat, _ in commands)
        for seat, command in commands:
            if not (type(command) is Step and command.is_light):
                self._prepare_command(seat, command)
        self._begun = time.perf_counter()
        for seat, command in reversed(commands):  # the first may be the caller itself
            try:
                self.launch(seat, command)
            except Exception:  # Ctrl-C does not wait: what was launched is settled by the next call
                self._settle()
                raise

    def _prepare_command(self, seat: Seat, command: Command) -> None:
        try:
            seat.worker.prepare(command)
        except Exception:
            self.post.dispatch(self.seats)  # what waited for those that are free now
            raise

    def launch(self, seat: Seat, command: Command, sent: Sequence[int] = ()) -> None:
        """Hand a command to a worker that has none."""
        self.quick.is_ready = False
        try:
            self._traffic.launch(seat, command, sent)
        except BaseException:
            self._is_in_order = False  # columns may have been told to nobody
            raise

    def _free(self, seats: Iterable[Seat]) -> None:
        """Wait for what these are at, and land it."""
        for seat in seats:
            while seat.flight is not None:
                self._traffic.has_answered(seat, None)
                self.land([seat])

    @exclusive
    def await_started(self, timeout_s: float | None) -> bool:
        """Whether all workers have answered, waiting at most so long."""
        deadline = None if timeout_s is None else time.perf_counter() + timeout_s
        for seat in self._started():
            left = None if deadline is None else max(0.0, deadline - time.perf_counter())
            if not self._traffic.has_answered(seat, left):
                return False
        return True

    @exclusive
    def finish(self) -> dict[int, Any]:
        """Wait for the answers and take all of them; then raise what went wrong, if anything.

        Returns the results of calls.
        """
        return self._finish()

    def _finish(self) -> dict[int, Any]:
        results = self._land_started()
        self.wait_s += time.perf_counter() - self._begun
        if self._troubles:
            self._forget()
            self.raise_troubles()
        self._look_after_seats()
        return results

    def _look_after_seats(self) -> None:
        """Replace workers that have grown too large, and let environments move."""
        with self.keeping_house():
            if self.plan.policy.max_worker_rss_mb is not None:
                recycle(self, self.plan.policy.max_worker_rss_mb)
            if self.wishes:
                moves.carry_out(self, list(self.wishes))
                self.post.dispatch(self.seats)

    @contextlib.contextmanager
    def keeping_house(self) -> Iterator[None]:
        """What nobody has asked for must not cost anyone a result: it is told, and tried again."""
        try:
            yield
        except (ShoalError, OSError) as problem:
            self._is_in_order = False
            self.note("house", f"environments could not be moved between workers: {problem}")

    def ask(self, seat: Seat, command: Command) -> dict[int, Any]:
        """Have one worker do something, now; its results, or what went wrong raised.

        What went wrong in a step that was sent, and came back meanwhile, is kept for `recv`.
        """
        self._start([(seat, command)])
        others, self._troubles = self._troubles, []
        try:
            results = self._land_started()
            self.raise_troubles()
        finally:
            self._troubles = others + self._troubles
        return results

    def _settle(self) -> None:
        """Take, and forget, the answers to a call that was interrupted before it was finished."""
        self.books.catch_up(self.supervisor)
        if self._started():
            self._land_started()
            self._forget()
            self._troubles.clear()
        if not self._is_in_order:
            self._put_in_order()

    def _forget(self) -> None:
        """Drop what came beside the rows, except for what is still to be received."""
        self.books.reader.forget(keep=self.post.ready())

    @contextlib.contextmanager
    def rearranging(self) -> Iterator[None]:
        """Environments or rows change hands; if that is broken off, the next call puts it right."""
        try:
            yield
        except BaseException:
            self._is_in_order = False
            raise

    def _put_in_order(self) -> None:
        """Whatever was broken off before: let every worker have what is its own, and only that."""
        self._is_in_order = True
        with self.rearranging():
            put_in_order(self)

    def _started(self) -> list[Seat]:
        """Seats whose flights belong to a call for all, not to `send`."""
        return [seat for seat in self.seats if seat.flight is not None and not seat.flight.sent]

    def _land_started(self) -> dict[int, Any]:
        """Wait for the flights of a call for all; its results."""
        seats, results = self._started(), {}
        flights = [seat.flight for seat in seats if seat.flight is not None]
        self._traffic.await_all(seats)
        self.land(seats)
        for flight in flights:
            for reply in flight.replies:
                results.update(reply.results)
        self.post.dispatch(seats)
        return results

    # --- first come, first served -----------------------------------------------------------

    @exclusive
    def send(self, env_ids: Sequence[int], actions: Any) -> None:
        """Start steps of these environments; those of a busy worker follow when it is free."""
        self._check_idle(env_ids, "send")
        self._settle()
        if self.together > 1:
            self._check_together(env_ids)
        self.post.send(env_ids, actions)

    @exclusive
    def recv(self, min_envs: int | None, timeout_s: float | None) -> Batch:
        """Everything that is ready, once at least `min_envs` are; TimeoutError loses nothing."""
        self._check_open("recv")
        self._settle()
        self.raise_troubles()
        num_sent = self.post.num_sent
        if num_sent == 0:
            raise ContractError("recv: nothing was sent. Call send(actions, env_ids) first.")
        min_envs = num_sent if min_envs is None else min_envs
        if not 1 <= min_envs <= num_sent:
            raise ContractError(
                f"recv: waiting for {min_envs} environments, but {num_sent} are outstanding. "
                f"Ask for 1 to {num_sent}."
            )
        return self.post.recv(min_envs, num_sent, timeout_s)

    # --- one command at a time per worker ---------------------------------------------------

    def land(self, seats: Sequence[Seat]) -> None:
        """Take what workers have answered and write it down; what went wrong is kept for later.

        A flight is over when all of that is done: what Ctrl-C breaks off here is done once more.
        """
        landed = [(seat, seat.flight) for seat in seats if seat.flight is not None]
        is_again = any(flight.is_half_recorded for _, flight in landed)
        for seat, flight in landed:
            flight.is_half_recorded = True
            self._take_in(seat, flight)
        if is_again:
            self._is_in_order = False
            self.books.record_again(landed)
        else:
            self.books.record(landed, self.supervisor)
        sent = [flight for _, flight in landed if flight.sent]
        if sent:
            self.post.come_back(sent)
        for seat, _ in landed:
            seat.land()

    def _take_in(self, seat: Seat, flight: Flight) -> None:
        if flight.trouble is not None:
            self._troubles.append(flight.trouble)
            if not flight.failed:
                self._fail(seat, flight)
        else:
            seat.failures = 0
        for reply in flight.replies:
            self._absorb(reply)
            self._troubles += [self.supervisor.error_of(seat, one) for one in reply.failures]
            for failure in reply.failures:
                flight.failed.update(failure.env_ids)
                if has_acted(failure):  # a replay cannot tell how far it came
                    self.books.distrust(failure.env_ids)
        if flight.sent and flight.failed:
            self.post.give_up(flight.failed.intersection(flight.sent))

    def _fail(self, seat: Seat, flight: Flight) -> None:
        """A command came to nothing for all that it was for; what was done before still counts."""
        flight.failed = set(flight.sent or seat.env_ids)
        if self.supervisor.is_lost(seat, flight):
            self.post.give_up(seat.queued)
            seat.queued = []
        elif type(flight.command) is Step:
            self.books.distrust(list(flight.failed))  # they may well have taken it

    def _absorb(self, reply: Reply) -> None:
        columns = self.books.reader.absorb(reply)
        if columns:
            for other in self.seats:
                other.news.extend(columns)
        for env_id, state in reply.generators.items():
            self.books.journal.entries[env_id].odd_generator = state
        self.tell_notes(reply)

    def tell_notes(self, reply: Reply) -> None:
        """Log what a worker has to say, each thing once."""
        for key, text in reply.notes.items():
            self.note(key, text)

    def note(self, key: str, text: str) -> None:
        """Something worth one line in the log, once per key."""
        if key not in self._noted:
            self._noted.add(key)
            log.warning("%s", text)

    # --- inside -----------------------------------------------------------------------------

    def _step_command(self, seat: Seat, slot: int, objects: dict[int, Any] | None) -> Step:
        news = seat.news
        if not news and objects is None:
            return self._steps[slot]
        seat.news = []
        if objects is not None:
            objects = {i: objects[i] for i in seat.env_ids if i in objects}
        return Step(slot, True, tuple(news), objects)

    @property
    def has_troubles(self) -> bool:
        """Whether something has gone wrong that the caller was not told yet."""
        return bool(self._troubles)

    def raise_troubles(self) -> None:
        """Raise the first of what went wrong, with the others told beside it."""
        if not self._troubles:
            return
        # A lost worker is the graver news; sorting is stable, so else the lowest env comes first.
        first, *others = sorted(self._troubles, key=lambda one: not isinstance(one, _DEATHS))
        self._troubles = []
        told = getattr(first, "__notes__", ())  # who is given up is told of again and again
        for note in (f"At the same time: {other}" for other in others):
            if note not in told:
                first.add_note(note)
        if isinstance(first, ShoalError):
            first.others = others
        raise first

    def by_seat(self, values: dict[int, Any]) -> list[tuple[Seat, dict[int, Any]]]:
        """Values by environment, as the part of each worker."""
        parts: dict[int, dict[int, Any]] = {}
        for env_id, value in values.items():
            parts.setdefault(self.owner[env_id].index, {})[env_id] = value
        return [(seat, parts[seat.index]) for seat in self.seats if seat.index in parts]

    def _whole_groups(self, env_ids: Sequence[int]) -> Sequence[int]:
        """These environments, and all that are in one vector environment with any of them."""
        if self.together == 1:
            return env_ids
        starts = dict.fromkeys(env_id - env_id % self.together for env_id in env_ids)
        return [start + k for start in starts for k in range(self.together)]

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
        if not self.post.num_sent:
            return
        busy = self.post.among(range(self.num_envs) if env_ids is None else env_ids)
        if busy:
            raise ContractError(
                f"{what}: environments {_some(busy)} were sent and not received yet. "
                "Receive them first."
            )

    def _check_together(self, env_ids: Sequence[int]) -> None:
        missing = sorted(set(self._whole_groups(env_ids)) - set(env_ids))
        if missing:
            raise ContractError(
                f"send: environments {_some(missing)} are in one vector environment with others "
                "that were given, and step together with them."
            )

    # --- another size, another state --------------------------------------------------------

    @exclusive
    def make_pages(self, count: int) -> None:
        """Have room for the observations of so many steps in one array, where that pays."""
        self._check_idle(None, "make_pages")
        self._settle()
        before, self.plan = self.plan, replace(self.plan, pages=count)
        try:
            shape, kept = self._shape(self.num_envs), self.books.shelves
            has_them = kept is not None and kept.num_pages == count
            rows = self.backend.make_rows(shape) if shape.blocks and not has_them else None
        except BaseException:
            self.plan = before
            raise
        self.supervisor.plan = self.plan
        if rows is not None:
            with self.rearranging():
                self.adopt(self.books.resized(self.plan, rows))
                put_in_order(self)

    def pages(self) -> list[Array] | None:
        """That room, by leaf, [pages, num_envs, ...]; None where there is none, or it is in use."""
        self._check_open("pages")
        return None if self.books.shelves is None else self.books.shelves.pages()

    @exclusive
    def resize(self, num_envs: int, num_workers: int) -> None:
        """Have so many environments and workers; new environments are still to be reset."""
        self._check_idle(None, "resize")
        self._settle()
        try:
            resize(self, num_envs, num_workers)
        except Exception:
            self._settle()
            rearrange(self)
            raise

    @exclusive
    def branch(self, env_id: int, into_ids: Sequence[int]) -> None:
        """Let other environments go on from the exact state of one."""
        self._check_idle([env_id, *into_ids], "branch")
        self._settle()
        branch(self, env_id, into_ids)

    @exclusive
    def mementos(self) -> list[Memento]:
        """Where every environment stands."""
        self._check_idle(None, "mementos")
        self._settle()
        return memento.take(self)

    @exclusive
    def go_on(self, mementos: Sequence[Memento]) -> list[int]:
        """Bring new environments to where others stood; those that did not get there."""
        self._check_idle(None, "go_on")
        self._settle()
        return memento.put(self, mementos)

    def adopt(self, books: Books) -> None:
        """Go on with these books, which are for another number of environments."""
        count = books.num_envs
        self.books = self.supervisor.books = books
        self.post.adopt(count)
        self.settled = {env_id for env_id in self.settled if env_id < count}
        self.supervisor.forget_from(count)
        self.num_envs = count  # last: until then it is not done

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

    def tally(self) -> Tally:
        """What was counted up to the latest step; while one is under way, to the one before."""
        if not self._busy._is_owned() and self._counting.acquire(False):  # type: ignore[attr-defined]
            try:
                if self._busy.acquire(False):
                    self._count()
            finally:
                self._counting.release()
        return self.books.reader.tally

    def _count(self) -> None:
        try:
            self.books.catch_up(self.supervisor)
        except BaseException:
            self._is_in_order = self.quick.is_ready = False
            raise
        finally:
            self._busy.release()

    def _after_counting(self) -> bool:
        """Whether it was only `tally` that another thread was at; then this one may go on.

        If that is through already, it lets go of `_counting` last, and the other lock is free.
        """
        return self._busy.acquire(timeout=1.0 if self._counting.locked() else 0.0)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def close(self, timeout_s: float | None = None) -> None:
        """Ask, wait, then insist. Safe to call twice, and after Ctrl-C it goes on."""
        self.quick.is_ready = False
        self.crew.timeout_s = CLOSE_TIMEOUT_S if timeout_s is None else timeout_s
        try:
            self.crew.close()
        finally:
            if self.crew.is_closed:  # else Ctrl-C came before all else: the finalizer does it
                self._finalizer.detach()


_DEATHS = (WorkerDied, WorkerTimeout)


def _some(env_ids: Iterable[int]) -> str:
    ids = list(env_ids)
    return ", ".join(map(str, ids[:8])) + (f" and {len(ids) - 8} more" if len(ids) > 8 else "")
