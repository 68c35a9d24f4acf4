"""Branching: environments go on from the exact state of another one, by a replay of its episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shoal.engine.commands import Call, Restore
from shoal.errors import ContractError

if TYPE_CHECKING:
    from shoal.engine.pool import Pool


def branch(pool: Pool, env_id: int, into_ids: Sequence[int]) -> None:
    """Bring others to where one environment is; ContractError where a replay ends elsewhere."""
    if pool.together > 1:
        raise ContractError("branch: episodes of a vector environment cannot be replayed.")
    books, origin = pool.books, pool.books.replay_of(env_id)
    if origin is None or origin.episode is None:
        limit = pool.plan.policy.replay_limit_steps
        raise ContractError(
            f"branch: env {env_id} has no episode on record. Reset it first; an episode may have "
            f"replay_limit_steps={limit} steps."
        )
    slots = dict(zip(into_ids, books.slots.next_for(into_ids), strict=True))
    for target, slot in slots.items():  # where its replay is compared with it
        for ring in books.rows.rings:
            ring[slot, target] = ring[origin.slot, env_id]
    how = {
        target: replace(
            origin,
            slot=slot,
            attributes={**_attributes(pool, env_id, target), **origin.attributes},
            next_reset=books.journal.entries[target].planned,
            num_episodes=books.journal.num_episodes[target] + 1,
        )
        for target, slot in slots.items()
    }
    books.distrust(into_ids)  # until all is written down
    problems = {}
    for seat, part in pool.by_seat(how):
        problems.update(pool.ask(seat, Restore(part)))
    there = [target for target in into_ids if not problems[target]]
    books.branch(env_id, there, {target: how[target].attributes for target in there})
    pool.supervisor.num_replays += len(there)
    failed = [target for target in into_ids if problems[target]]
    if failed:
        for seat, lost in pool.by_seat({i: pool.supervisor.restart_of(i) for i in failed}):
            pool.ask(seat, Restore(lost))
        raise ContractError(
            f"branch: env {failed[0]} did not come to where env {env_id} is: "
            f"{problems[failed[0]]}. Only environments that follow from generator, options and "
            f"actions alone can branch. Lost, and restarted with their next step: {failed}."
        )


def _attributes(pool: Pool, env_id: int, target: int) -> dict[str, Any]:
    """What the caller has set on the target and not on the origin, as the origin has it."""
    journal, seat = pool.books.journal, pool.owner[env_id]
    names = journal.attributes_of(target).keys() - journal.attributes_of(env_id).keys()
    attributes = {}
    for name in sorted(names):
        held = pool.ask(seat, Call(_held, (name,), {}, [env_id]))[env_id]
        if not held:
            raise ContractError(
                f"branch: env {target} has an attribute {name!r}, by set_attr, and env {env_id} "
                "has none, so that one cannot become like the other. Set it on both."
            )
        (attributes[name],) = held
    return attributes


def _held(env: Any, name: str) -> tuple[Any, ...]:
    """An attribute as it is, be it a function; nothing where there is none."""
    try:
        return (getattr(env, "get_wrapper_attr", env.__getattribute__)(name),)
    except AttributeError:
        return ()
