"""Resizing a pool between two steps: more or fewer environments, more or fewer workers.

Highest numbers go, new ones come; all others keep their episodes. Blocks become even again as
environments move to their new workers, each between two of its episodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.engine import moves
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
    _keep_envs(pool, kept)
    _change_size(pool, num_envs, num_workers)
    _meet_seats(pool, num_workers)
    try:
        _build_envs(pool, range(kept, num_envs))
    except BaseException:
        _keep_envs(pool, kept)
        _change_size(pool, kept, num_workers)
        raise
    finally:
        _rearrange(pool)


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


def _keep_envs(pool: Pool, num_envs: int) -> None:
    """Let go of all environments from this number on."""
    for seat in pool.seats:
        gone = [env_id for env_id in seat.env_ids if env_id >= num_envs]
        if gone:
            seat.env_ids = [env_id for env_id in seat.env_ids if env_id < num_envs]
            pool.ask(seat, Release(gone))
    pool.owner = pool.owner[:num_envs]


def _change_size(pool: Pool, num_envs: int, num_workers: int) -> None:
    """Give everyone rows of the new length, with what was in the old ones."""
    pool.plan = replace(pool.plan, num_envs=num_envs, num_workers=num_workers)
    pool.supervisor.plan = pool.plan
    if num_envs == pool.num_envs:
        return
    pool.adopt(pool.books.resized(pool.plan, pool.make_rows(num_envs)))
    for seat in pool.seats:
        seat.news.clear()
        pool.ask(seat, Attach(pool.books.rows, pool.books.reader.columns()))


def _meet_seats(pool: Pool, num_workers: int) -> None:
    """Have at least so many workers; the others leave when their environments have moved."""
    for k, seat in enumerate(pool.seats):
        seat.is_leaving = k >= num_workers
    while len(pool.seats) < num_workers:
        pool.add_seat()


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


def _rearrange(pool: Pool) -> None:
    """Let everyone move to its seat, now or when its episode has ended."""
    targets = enumerate(_targets(pool))
    pool.wishes = {i: seat for i, seat in targets if pool.owner[i] is not seat}
    moves.carry_out(pool, list(pool.wishes))
    for seat in [seat for seat in pool.seats if seat.is_leaving and not seat.env_ids]:
        pool.remove(seat)
