"""Moves: an environment changes its worker, between two of its episodes and never in one.

It is built anew where it is to be, with its attributes, its planned reset and the state of its
generator, and only then closed where it was. In mode same_step the new episode has begun already
when its end becomes known; then that reset is taken again and compared, and an environment for
which it comes out differently stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.engine import staff
from shoal.engine.commands import Build, Recovery, Release, Restore, Snapshot
from shoal.engine.seat import Seat
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.engine.pool import Pool


def carry_out(pool: Pool, env_ids: Iterable[int]) -> None:
    """Let those of these environments that are to change seats, and can do so now, do it."""
    ways: dict[tuple[int, int], tuple[Seat, Seat, list[int]]] = {}
    for env_id in env_ids:
        target, source = pool.wishes.get(env_id), pool.owner[env_id]
        is_free = source.flight is None and pool.books.is_between_episodes(env_id)
        if target is source:
            del pool.wishes[env_id]
        elif target is not None and is_free:
            way = ways.setdefault((source.index, target.index), (source, target, []))
            way[2].append(env_id)
    for source, target, ids in ways.values():
        with pool.rearranging():
            held, source.queued = source.queued, []  # or asking it lets it begin what waits
            try:
                _move(pool, source, target, ids)
            finally:
                for env_id in held:
                    pool.owner[env_id].queued.append(env_id)


def set_apart(pool: Pool, slow: set[int]) -> None:
    """Let environments that keep others waiting have a worker of their own.

    There are at most as many such workers as there were to begin with; then slow ones share.
    """
    for env_id in slow - pool.wishes.keys() - pool.settled:
        if all(mate in slow for mate in pool.owner[env_id].env_ids):
            continue  # with its like, or alone
        apart = [seat for seat in pool.seats if seat.env_ids and slow.issuperset(seat.env_ids)]
        if len(pool.seats) < 2 * pool.plan.num_workers:
            pool.wishes[env_id] = staff.add_seat(pool)
        elif apart:
            pool.wishes[env_id] = min(apart, key=lambda seat: len(seat.env_ids))


def _move(pool: Pool, source: Seat, target: Seat, env_ids: Sequence[int]) -> None:
    how = _recoveries(pool, source, env_ids)
    if not how:
        return
    pool.books.rows.asked[:, list(how)] = 0  # the target may step others before it is told
    try:
        pool.ask(target, Build(pool.plan.assign(target.index, list(how))))
    except ShoalError as problem:
        return _stay(pool, list(how), str(problem))
    target.env_ids = sorted([*target.env_ids, *how])
    problems = pool.ask(target, Restore(how))
    staying = [env_id for env_id in how if problems[env_id]]
    if staying:
        _give_up(pool, target, staying)
        _stay(pool, staying, problems[staying[0]])
    moved = [env_id for env_id in how if not problems[env_id]]
    if moved:
        pool.note(
            "moves",
            f"env {moved[0]} has moved to worker {target.index}. Environments that move are built "
            "anew between two episodes, with their generator and what set_attr gave them; whatever "
            "else they or their wrappers had kept begins anew.",
        )
    for env_id in moved:
        del pool.wishes[env_id]
        pool.owner[env_id] = target
    if moved:
        _give_up(pool, source, moved)
    if source.is_leaving and not source.env_ids:
        staff.remove(pool, source)


def _recoveries(pool: Pool, source: Seat, env_ids: Sequence[int]) -> dict[int, Recovery]:
    """How each goes on where it is to be; those for which that is not known are left out."""
    books = pool.books
    begun = [i for i in env_ids if not books.is_over(i)]
    states = pool.ask(source, Snapshot([i for i in env_ids if i not in begun]))
    how: dict[int, Recovery] = {}
    for env_id in env_ids:
        if env_id not in begun:
            how[env_id] = replace(books.standing_of(env_id), generator=states[env_id])
        elif (again := books.replay_of(env_id)) is not None:
            how[env_id] = again
        else:
            _stay(pool, [env_id], "its reset was not recorded")
    return how


def _give_up(pool: Pool, seat: Seat, env_ids: Sequence[int]) -> None:
    seat.env_ids = [env_id for env_id in seat.env_ids if env_id not in env_ids]
    pool.ask(seat, Release(env_ids))


def _stay(pool: Pool, env_ids: Sequence[int], why: str) -> None:
    for env_id in env_ids:
        del pool.wishes[env_id]
        pool.settled.add(env_id)
    pool.note("stays", f"env {env_ids[0]} cannot move to another worker: {why}.")
