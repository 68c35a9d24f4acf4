"""Staff: workers are launched, told what they are for, and let go again.

What a worker answers first is about itself: no environment has taken a step yet, so nothing can be
recovered, and whatever is wrong is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.engine.backends import CLOSE_TIMEOUT_S
from shoal.engine.commands import NOBODY, Attach, Build, Built, Reply
from shoal.engine.incident import leave_construction
from shoal.engine.rows import Rows
from shoal.engine.seat import Seat
from shoal.errors import EnvRaised, WorkerDied, WorkerTimeout

if TYPE_CHECKING:
    from shoal.engine.pool import Pool


def launch(pool: Pool) -> list[Built]:
    """Launch all workers, each with its share of the environments; what these are like."""
    builds = [Build(pool.plan.share(worker)) for worker in range(pool.plan.num_workers)]
    workers = pool.crew.launch(builds)
    pool.seats = [Seat(k, worker, ()) for k, worker in enumerate(workers)]
    built = [_first_answer(pool, seat).built for seat in pool.seats]
    return [one for one in built if one is not None]


def attach(pool: Pool, rows: Rows) -> None:
    """Give all of them their rows."""
    for seat in pool.seats:
        seat.worker.put(Attach(rows))
    for seat in pool.seats:
        _first_answer(pool, seat)


def add_seat(pool: Pool) -> Seat:
    """One more worker, without environments for now."""
    taken = {seat.index for seat in pool.seats}
    index = next(k for k in range(len(taken) + 1) if k not in taken)
    (worker,) = pool.crew.launch([Build(pool.plan.assign(index, ()))])
    seat = Seat(index, worker, ())
    try:
        _first_answer(pool, seat)
        worker.put(Attach(pool.books.rows, pool.books.reader.columns()))
        _first_answer(pool, seat)
        pool.seats.append(seat)
    except BaseException:
        pool.crew.dismiss(worker)
        raise
    return seat


def remove(pool: Pool, seat: Seat) -> None:
    """Let a worker go that has no environments any more."""
    pool.seats.remove(seat)
    pool.crew.dismiss(seat.worker, CLOSE_TIMEOUT_S)


def _first_answer(pool: Pool, seat: Seat) -> Reply:
    try:
        reply = _first_reply(pool, seat)
    except WorkerDied as death:
        place = seat.worker.at()
        if place.phase == "construct" and place.env_id != NOBODY:
            leave_construction(pool.plan, seat.index, place.env_id, death)
        raise
    for failure in reply.failures:
        error = failure.as_error(seat.index, seat.worker.pid)
        if isinstance(error, EnvRaised) and failure.phase == "construct":
            leave_construction(pool.plan, seat.index, failure.env_ids[0], error, failure)
        raise error
    pool.tell_notes(reply)
    return reply


def _first_reply(pool: Pool, seat: Seat) -> Reply:
    limit_s = pool.plan.terms.start_timeout_s
    # A process that is late is ended by its own end of the wait; a thread cannot be.
    if not seat.worker.wait(None if pool.backend.loses_workers else limit_s):
        raise WorkerTimeout(
            f"worker {seat.index} has not built its environments within {limit_s} s. "
            "Raise start_timeout_s if they need longer.",
            worker=seat.index,
            phase="construct",
        )
    return seat.worker.take() or Reply()
