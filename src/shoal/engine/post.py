"""Post: steps that are sent to some environments and received when they are done.

An environment is *sent* from `send` until `recv` hands out its result, and nothing else may be
asked of it then. A worker has one such step under way, and another one ahead, which it begins by
itself: while the caller is at something else it has always something to do. What is sent beyond
that waits until the worker takes more.

    send ──► queued ──► ahead ──► flight ──► ready ──► recv
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.engine import moves
from shoal.engine.batch import Batch
from shoal.engine.commands import Step
from shoal.engine.pace import Pace
from shoal.engine.recycle import recycle
from shoal.engine.seat import Flight, Seat
from shoal.engine.traffic import LOOK_AROUND_S, Traffic

if TYPE_CHECKING:
    from shoal.engine.pool import Pool


@dataclass(slots=True)
class View:
    """How far workers are with steps that were sent."""

    landing: list[Seat] = field(default_factory=list)
    """Those whose flights are over."""
    num_done: int = 0
    """How many steps these have taken that are not written down yet."""
    num_under_way: int = 0
    """How many steps workers are at, or have ahead."""
    is_urgent: bool = False
    """Whether one of these workers gets something to do, or has more to say than that."""
    any_waits: bool = False
    """Whether there is something to do as soon as one of those at work is through."""

    def num_wanted(self, num_missing: int) -> int:
        """How many steps others are to take before there is anything to do for the caller.

        Never more than are under way: there may be more missing that only the caller can take.
        """
        if self.any_waits:
            return 1
        return min(num_missing - self.num_done, max(self.num_under_way, 1))


class Post:
    """Who was sent, who is ready, and what waits for a worker."""

    def __init__(self, pool: Pool, traffic: Traffic) -> None:
        self._pool: Pool = weakref.proxy(pool)  # who drops the last reference closes the pool
        self._traffic = traffic
        self._steps = Step(0, everyone=False), Step(1, everyone=False)
        self._objects: dict[int, Any] = {}
        """Parts of actions that have no row, of those that are sent."""
        self._looked = 0.0
        """When somebody last asked whether workers still live."""
        self._takes_parts = False
        """Whether the caller takes less at a time than it has sent."""
        self.adopt(pool.num_envs)

    def adopt(self, num_envs: int) -> None:
        """There are so many environments now, and none is sent."""
        self._sent = np.zeros(num_envs, dtype=np.bool_)
        self._ready = np.zeros(num_envs, dtype=np.bool_)
        self._pace = Pace(num_envs)

    @property
    def num_sent(self) -> int:
        """How many environments were sent and not received."""
        return int(np.count_nonzero(self._sent))

    def among(self, env_ids: Sequence[int]) -> list[int]:
        """Those of these environments that were sent and not received."""
        ids = np.asarray(env_ids)
        return ids[self._sent[ids]].tolist()  # type: ignore[no-any-return]

    def ready(self) -> set[int]:
        """Those whose results wait to be received."""
        return set(np.flatnonzero(self._ready).tolist())

    def waiting(self) -> set[int]:
        """Environments that were sent and that no worker is at."""
        self._ready &= self._sent
        flights = [one for seat in self._pool.seats for one in (seat.flight, seat.ahead)]
        flying = {env_id for flight in flights if flight is not None for env_id in flight.sent}
        return set(np.flatnonzero(self._sent & ~self._ready).tolist()) - flying

    # --- out --------------------------------------------------------------------------------

    def send(self, env_ids: Sequence[int], actions: Any) -> None:
        """Start steps of these environments."""
        pool, books, owner = self._pool, self._pool.books, self._pool.owner
        objects = books.actions.write(env_ids, actions, books.resets_next)
        if objects is not None:
            for seat, part in pool.by_seat(objects):
                seat.worker.prepare(Step(0, False, (), part))
        if self._objects or objects:
            kept = {i: parts for i, parts in self._objects.items() if i not in env_ids}
            self._objects = kept | (objects or {})
        self._sent[env_ids] = True
        for env_id in env_ids:
            owner[env_id].queued.append(env_id)
        self.dispatch(pool.seats)

    def dispatch(self, seats: Iterable[Seat]) -> None:
        """Let workers step whatever waits for them, now or after what they are at.

        Where batches are smaller than what is sent, they get it in two parts: one can be received
        while they are at the other. These are halves of what a worker has, and so the same again
        and again: it has everything ready for them. A worker that is the caller itself waits for
        `recv`.
        """
        for seat in seats:
            if not seat.queued or seat.worker.is_caller:
                continue
            if seat.flight is None:
                in_two = self._takes_parts and seat.worker.takes_ahead
                self._launch(seat, (len(seat.env_ids) + 1) // 2 if in_two else len(seat.queued))
            if seat.queued and self._may_put_ahead(seat):
                ids, seat.queued = seat.queued, []
                self._traffic.launch_ahead(seat, self._command(seat, ids), ids)

    def _launch(self, seat: Seat, count: int) -> None:
        """Let an idle worker step the first that wait for it; those that step together, all."""
        if self._pool.together > 1:
            count = len(seat.queued)
        ids, seat.queued = seat.queued[:count], seat.queued[count:]
        self._pool.launch(seat, self._command(seat, ids), ids)

    def _may_put_ahead(self, seat: Seat) -> bool:
        """Whether a worker may begin what waits by itself, after the flight that it is at."""
        flight, wishes = seat.flight, self._pool.wishes
        return (
            seat.worker.takes_ahead
            and seat.ahead is None
            and flight is not None
            and len(flight.sent) > 0
            and not flight.landed
            and flight.recovery is None
            and not flight.replies  # it may be at a step again, and need both lists
            and not seat.news
            and not self._objects
            and (not wishes or wishes.keys().isdisjoint(seat.env_ids))  # they move when it is idle
        )

    def _command(self, seat: Seat, env_ids: Sequence[int]) -> Step:
        which = 0  # of the two lists of who is asked for: the one that the flight does not use
        if seat.flight is not None and type(seat.flight.command) is Step:
            which = 1 - seat.flight.command.slot
        self._pool.books.ask(seat, env_ids, which)
        news, waiting = seat.news, self._objects
        if not news and not waiting:
            return self._steps[which]
        seat.news = []
        objects = {i: waiting[i] for i in env_ids if i in waiting} if waiting else None
        return Step(which, False, tuple(news), objects)

    # --- back -------------------------------------------------------------------------------

    def recv(self, min_envs: int, num_sent: int, timeout_s: float | None) -> Batch:
        """Everything that is ready, once at least `min_envs` of those that were sent are."""
        pool, begun = self._pool, time.perf_counter()
        self._takes_parts = min_envs < num_sent
        deadline = None if timeout_s is None else begun + timeout_s
        try:
            self._await_ready(min_envs, min_envs / num_sent, deadline)
        finally:
            pool.wait_s += time.perf_counter() - begun
        ids = np.flatnonzero(self._ready)
        self._sent[ids] = False
        self._ready[ids] = False
        return pool.books.reader.collect_some(pool.books.slots.of(ids), ids)

    def _await_ready(self, min_envs: int, share: float, deadline: float | None) -> None:
        pool, has_stepped, has_listened = self._pool, False, False
        while True:
            done = pool.backend.done()  # first: what is done from here on is counted once or twice
            asks_all = time.perf_counter() - self._looked > LOOK_AROUND_S
            if asks_all:
                self._looked = time.perf_counter()
            view = self._look(asks_all)
            ready = int(np.count_nonzero(self._ready))
            if not has_stepped:
                has_stepped = True
                own = self._own_with_steps()
                if own:
                    self._step_own(own, share, min_envs - ready - view.num_done)
                    view = self._look(asks_all)
            # All at once takes a third of the time: not until the caller gets something for it.
            is_worth_it = view.is_urgent or view.num_done >= min_envs - ready
            if view.landing and (asks_all or is_worth_it):
                self._land(view.landing)
                pool.raise_troubles()
                if np.count_nonzero(self._ready) >= min_envs:
                    return
                continue  # what they had ahead may be over, too
            pool.raise_troubles()
            if ready >= min_envs:
                return
            takes_long = has_listened and asks_all
            own = self._own_with_steps() if takes_long or not view.num_under_way else []
            if own:
                self._step_own(own, share, min_envs - ready)
                continue
            left = 1.0 if deadline is None else deadline - time.perf_counter()
            if left <= 0:
                raise TimeoutError(
                    f"recv: {ready} of {min_envs} environments were ready in time. "
                    "Nothing is lost: call recv again."
                )
            pool.backend.listen(left, done + view.num_wanted(min_envs - ready))
            has_listened = True

    def _look(self, asks_all: bool) -> View:
        """How far everyone is; `asks_all` also finds out who will never answer."""
        traffic, view = self._traffic, View()
        for seat in self._pool.seats:
            flight = seat.flight
            if flight is None:
                continue
            if not traffic.land_quietly(seat) and (asks_all or traffic.has_news(seat)):
                traffic.has_answered(seat, 0.0)
            ahead, waits = seat.ahead, bool(seat.queued and not seat.worker.is_caller)
            if flight.landed:
                view.landing.append(seat)
                view.num_done += len(flight.sent)
                view.is_urgent |= bool(seat.queued or flight.replies or flight.trouble)
            else:
                view.num_under_way += len(flight.sent)
                waits = waits or flight.recovery is not None
            view.any_waits |= waits
            if ahead is not None:
                if flight.landed and seat.worker.is_idle():
                    view.num_done += len(ahead.sent)
                    view.is_urgent = True
                else:
                    view.num_under_way += len(ahead.sent)
        return view

    def _own_with_steps(self) -> list[Seat]:
        """Workers that are the caller itself, and for which something waits."""
        seats = self._pool.seats
        return [one for one in seats if one.worker.is_caller and one.queued and one.flight is None]

    def _step_own(self, own: Sequence[Seat], share: float, num_missing: int) -> None:
        """Let a worker that is the caller itself step some of what waits for it.

        In every batch it does its share; or half of it, where others are ready before, because the
        caller has more to do than they have; and more, where others take long.
        """
        for seat in own:
            most = share * len(seat.queued)
            self._launch(seat, math.ceil(max(most / 2, min(most, num_missing))))

    def _land(self, seats: Sequence[Seat]) -> None:
        pool, limit_mb = self._pool, self._pool.plan.policy.max_worker_rss_mb
        pool.land(seats)
        if not pool.has_troubles and (pool.wishes or limit_mb is not None):
            self._rearrange(seats, limit_mb)
        self.dispatch(seats)

    def _rearrange(self, seats: Sequence[Seat], limit_mb: float | None) -> None:
        """Let environments of idle workers change seats; what waited for them goes along."""
        pool = self._pool
        with pool.keeping_house():
            if limit_mb is not None:
                recycle(pool, limit_mb)
            idle = [env_id for seat in seats if seat.flight is None for env_id in seat.env_ids]
            moves.carry_out(pool, [env_id for env_id in idle if env_id in pool.wishes])
        self.dispatch([seat for seat in pool.seats if seat.flight is None])

    def come_back(self, flights: Iterable[Flight]) -> None:
        """Steps that were sent can be received, except for those that came to nothing."""
        ids: list[int] = []
        for flight in flights:
            failed = flight.failed
            ids += [i for i in flight.sent if i not in failed] if failed else flight.sent
        self._ready[ids] = True
        pool = self._pool
        if len(pool.seats) > 1 and pool.together == 1:
            is_time = self._pace.note(pool.books.rows, ids)
            if is_time and not pool.has_troubles and (slow := self._pace.slow()):
                with pool.keeping_house():
                    moves.set_apart(pool, slow)

    def give_up(self, env_ids: Iterable[int]) -> None:
        """These were sent and will never be received."""
        ids = list(env_ids)
        self._sent[ids] = self._ready[ids] = False
