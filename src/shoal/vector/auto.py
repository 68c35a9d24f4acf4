"""`backend="auto"`: measure one environment, or remember it, and choose."""

from __future__ import annotations

import contextlib
import logging

from shoal.engine.backends import Terms
from shoal.engine.machine import free_memory_mb, usable_cores
from shoal.engine.probe import probe, warm
from shoal.vector.choice import Choice, Situation, choose, needs_probe
from shoal.vector.memo import Memo
from shoal.vector.source import Resolved

log = logging.getLogger("shoal")


def decide(
    source: Resolved,
    num_envs: int,
    num_workers: int | None,
    isolated: bool,
    terms: Terms,
    until_made: contextlib.ExitStack,
) -> Choice:
    """Where these environments are to run, told in one line of the log.

    What a probe has started, and the pool may need too, is kept `until_made` is left.
    """
    situation = Situation(num_envs, usable_cores(), num_workers, isolated, free_memory_mb())
    found = None
    if needs_probe(situation):
        memo = Memo(source)
        found = memo.recall()
        if found is None:
            until_made.enter_context(warm())
            found = probe(source.factories[0], terms)
            memo.keep(found)
    choice = choose(found, situation)
    log.info(
        "backend=%r with %d worker%s for %d environments: %s",
        choice.backend,
        choice.num_workers,
        "" if choice.num_workers == 1 else "s",
        num_envs,
        choice.reason,
    )
    return choice
