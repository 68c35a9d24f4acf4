"""Recycling: a worker whose memory has grown too large is replaced, and no episode is cut for it.

A new worker is started beside it; its environments move there as their episodes end, and with the
last of them it goes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shoal.engine import staff
from shoal.engine.seat import Seat

if TYPE_CHECKING:
    from shoal.engine.pool import Pool

log = logging.getLogger("shoal")


def recycle(pool: Pool, limit_mb: float) -> None:
    """Begin to replace every worker that has more memory than this."""
    for seat in list(pool.seats):
        if seat.is_leaving or pool.settled.issuperset(seat.env_ids):
            continue
        resident_mb = seat.worker.resident_mb()
        if not seat.first_mb:
            seat.first_mb = resident_mb
        if resident_mb > limit_mb and not _is_too_low(pool, seat, limit_mb):
            _replace(pool, seat, resident_mb, limit_mb)


def _is_too_low(pool: Pool, seat: Seat, limit_mb: float) -> bool:
    """Whether a worker is over the limit from the start, so that replacing it changes nothing."""
    if seat.first_mb <= limit_mb:
        return False
    pool.note(
        "rss",
        f"max_worker_rss_mb is {limit_mb}, but a worker that has just begun has "
        f"{seat.first_mb:.0f} MB: workers are not replaced. Raise the limit.",
    )
    return True


def _replace(pool: Pool, seat: Seat, resident_mb: float, limit_mb: float) -> None:
    successor = staff.add_seat(pool)
    seat.is_leaving = True
    movable = [env_id for env_id in seat.env_ids if env_id not in pool.settled]
    pool.wishes.update(dict.fromkeys(movable, successor))
    pool.supervisor.note_growth(
        seat, f"worker {seat.index} has {resident_mb:.0f} MB; max_worker_rss_mb is {limit_mb}."
    )
