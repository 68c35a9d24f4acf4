"""Resizing a pool between two steps: more or fewer environments, more or fewer workers.

Highest numbers go, new ones come; all others keep their episodes. Blocks become even again as
environments move to their new workers, each between two of its episodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.engine import moves, staff
from shoal.engine.commands import Assignment, Attach, Build, Release
from shoal.engine.seat import Seat
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.engine.pool import Pool


def resize(pool: Pool, num_envs: int, num_workers: int) -> None:
    """Give a pool so many environments and workers; new environments are built but not reset.

    Where a new one cannot be built, the pool keeps the environments that it had.
    """
    _check(pool, num_envs)
    kept = min(num_envs, pool.num_envs)
    with pool.rearranging():
        _meet_seats(pool, num_workers)
        pool.owner = pool.owner[:kept]
        pool.plan = pool.supervisor.plan = replace(pool.plan, num_workers=num_workers)
        put_in_order(pool, num_envs)
        _build_envs(pool, range(kept, num_envs))
        rearrange(pool)


def put_in_order(pool: Pool, num_envs: int | None = None) -> None:
    """Let every worker have the environments that are its, and no other, and everyone's rows.

    With `num_envs` there are rows for more environments than there are yet. Whatever was broken off
    before, this puts it right: who has which environment is decided by `pool.owner` alone.
    """
    num_envs = len(pool.owner) if num_envs is None else num_envs
    pool.plan = pool.supervisor.plan = replace(pool.plan, num_envs=num_envs)
    if num_envs != pool.books.num_envs or num_envs != pool.num_envs:
        pool.adopt(pool.books.resized(pool.plan, pool.make_rows(num_envs)))
    for seat in pool.seats:
        waiting = pool.post.waiting()  # anew: whoever is put in order before may let it begin
        seat.env_ids = [i for i, owner in enumerate(pool.owner) if owner is seat]
        seat.queued = [i for i in seat.env_ids if i in waiting]
        seat.news.clear()
        pool.ask(seat, Release(seat.env_ids, others=True))
        pool.ask(seat, Attach(pool.books.rows, pool.books.reader.columns()))


def _check(pool: Pool, num_envs: int) -> None:
    if pool.together > 1:
        raise ConfigError(
            "resize: the environments of a vector environment cannot be told apart. Make a new "
            "pool instead."
        )
    if pool.plan.one_each and num_envs > len(pool.plan.factories):
        raise ConfigError(
            f"resize: num_envs is {num_envs}, but the list holds {len(pool.plan.factories)} "
            "factories, one for each environment."
        )


def _meet_seats(pool: Pool, num_workers: int) -> None:
    """Have at least so many workers; the others leave when their environments have moved."""
    for k, seat in enumerate(pool.seats):
        seat.is_leaving = k >= num_workers
    while len(pool.seats) < num_workers:
        staff.add_seat(pool)


def _targets(pool: Pool) -> list[Seat]:
    """The seat that each environment is to have: even blocks."""
    num_workers, num_envs = pool.plan.num_workers, pool.plan.num_envs
    shares = [Assignment(k, num_workers, num_envs, ()).ids() for k in range(num_workers)]
    return [seat for seat, share in zip(pool.seats, shares, strict=False) for _ in share]


def _build_envs(pool: Pool, env_ids: range) -> None:
    targets = _targets(pool)
    for seat in dict.fromkeys(targets[i] for i in env_ids):
        ids = [i for i in env_ids if targets[i] is seat]
        pool.ask(seat, Build(pool.plan.assign(seat.index, ids)))
        seat.env_ids = sorted([*seat.env_ids, *ids])
    pool.owner += [targets[i] for i in env_ids]


def rearrange(pool: Pool) -> None:
    """Let everyone move to its seat, now or when its episode has ended."""
    targets = enumerate(_targets(pool))
    pool.wishes = {i: seat for i, seat in targets if pool.owner[i] is not seat}
    moves.carry_out(pool, list(pool.wishes))
    for seat in [seat for seat in pool.seats if seat.is_leaving and not seat.env_ids]:
        staff.remove(pool, seat)
