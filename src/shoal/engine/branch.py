"""Branching: environments go on from the exact state of another one, by a replay of its episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.engine.commands import Restore
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
            next_reset=books.journal.entries[target].planned,
            num_episodes=books.journal.entries[target].num_episodes + 1,
        )
        for target, slot in slots.items()
    }
    books.distrust(into_ids)  # until all is written down
    problems = {}
    for seat, part in pool.by_seat(how):
        problems.update(pool.ask(seat, Restore(part)))
    books.branch(env_id, [target for target in into_ids if not problems[target]])
    failed = [target for target in into_ids if problems[target]]
    if failed:
        for seat, lost in pool.by_seat({i: pool.supervisor.restart_of(i) for i in failed}):
            pool.ask(seat, Restore(lost))
        raise ContractError(
            f"branch: env {failed[0]} did not come to where env {env_id} is: "
            f"{problems[failed[0]]}. Only environments that follow from generator, options and "
            f"actions alone can branch. Lost, and restarted with their next step: {failed}."
        )
