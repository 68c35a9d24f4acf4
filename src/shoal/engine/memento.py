"""Mementos: where every environment of a pool stands, so that another pool can go on from there.

A memento holds what a rebuilt environment is told after a fault (`Recovery`), and the observation
that its replay is compared with. The other pool, in another process and on another day, gets its
environments to the very same states; where a replay ends elsewhere, the episode is lost, and its
next step says so, as after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shoal.engine.commands import Episode, Recovery, ResetArgs, Restore
from shoal.engine.journal import Entry
from shoal.errors import ContractError
from shoal.layout import Array
from shoal.seeding import Seed

if TYPE_CHECKING:
    from shoal.engine.pool import Pool


@dataclass(frozen=True, slots=True)
class Memento:
    """Where one environment stands."""

    observation: tuple[Array, ...]
    """Its latest, one array per leaf."""
    attributes: dict[str, Any]
    """What `set_attr` had set before the running episode began."""
    planned: ResetArgs | None
    """What its next automatic reset uses."""
    seed: Seed
    num_restarts: int
    num_episodes: int
    episode: Episode | None
    """The running one; None where it is not on record."""


def take(pool: Pool) -> list[Memento]:
    """Where all environments of a pool stand."""
    if pool.together > 1 or pool.books.rows.shape.observation.has_objects:
        raise ContractError(
            "where these environments stand cannot be noted: they are parts of a vector "
            "environment, or their observations are no arrays."
        )
    return [_memento(pool, env_id) for env_id in range(pool.num_envs)]


def _memento(pool: Pool, env_id: int) -> Memento:
    books, journal = pool.books, pool.books.journal
    entry, slot = journal.entries[env_id], books.slots.of_one(env_id)
    recovery = books.replay_of(env_id)
    standing = recovery or books.standing_of(env_id)
    return Memento(
        observation=tuple(ring[slot, env_id].copy() for ring in books.rows.rings),
        attributes=dict(standing.attributes),
        planned=standing.next_reset,
        seed=entry.seed,
        num_restarts=entry.num_restarts,
        num_episodes=journal.num_episodes[env_id],
        episode=None if recovery is None else recovery.episode,
    )


def put(pool: Pool, mementos: Sequence[Memento]) -> list[int]:
    """Bring environments that were never reset to where others stood; those that did not get there.

    Their episodes are lost: their next steps tell it, and they go on with new ones.
    """
    if any(pool.books.journal.num_episodes) or len(mementos) != pool.num_envs:
        raise ContractError(
            f"{len(mementos)} environments are to go on where others stood, which needs as many "
            f"new ones; here are {pool.num_envs}, and they must not have been reset."
        )
    slot = pool.books.slots.common
    for k, ring in enumerate(pool.books.rows.rings):
        ring[slot] = [one.observation[k] for one in mementos]
    lost = {i for i, one in enumerate(mementos) if one.episode is None and one.num_episodes}
    how = {i: _recovery(one, slot) for i, one in enumerate(mementos) if i not in lost}
    for seat, part in pool.by_seat(how):
        problems = pool.ask(seat, Restore(part))
        lost.update(i for i in part if problems[i])
    _write_down(pool, mementos, lost)
    for seat, given_up in pool.by_seat({i: pool.supervisor.restart_of(i) for i in sorted(lost)}):
        pool.ask(seat, Restore(given_up))
    return sorted(lost)


def _recovery(memento: Memento, slot: int) -> Recovery:
    return Recovery(
        slot=slot,
        attributes=memento.attributes,
        next_reset=memento.planned,
        num_episodes=memento.num_episodes,
        seed=memento.seed,
        episode=memento.episode,
    )


def _write_down(pool: Pool, mementos: Sequence[Memento], lost: set[int]) -> None:
    pool.books.go_on(
        [_entry(one) for one in mementos],
        [None if i in lost else one.episode for i, one in enumerate(mementos)],
        [one.num_episodes for one in mementos],
    )


def _entry(memento: Memento) -> Entry:
    episode = memento.episode
    entry = Entry(
        planned=memento.planned,
        seed=memento.seed,
        num_restarts=memento.num_restarts,
        attributes=dict(memento.attributes),
    )
    if episode is None:
        return entry
    return replace(
        entry,
        args=episode.args,
        changes=list(episode.changes),
        objects=dict(episode.objects),
    )
