"""Where environments stand, as arrays and as what JSON can hold: a checkpoint's part about them.

What users put into options and attributes may be anything. An episode that depends on something
that JSON cannot hold is not kept: whoever goes on from there begins a new one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.engine.commands import Episode, ResetArgs
from shoal.engine.memento import Memento
from shoal.layout import Array

log = logging.getLogger("shoal")

Kept = tuple[dict[str, Array], list[dict[str, Any]]]


def pack(mementos: Sequence[Memento]) -> Kept:
    """Arrays by name, and the rest, one entry for each environment."""
    arrays: dict[str, Array] = {}
    about = []
    for env_id, one in enumerate(mementos):
        arrays |= _named(f"env.{env_id}.observation", one.observation)
        episode = one.episode if one.episode is not None and _is_plain(one.episode) else None
        if episode is not None:
            arrays |= _named(f"env.{env_id}.actions", episode.actions)
        about.append(
            {
                "attributes": {k: v for k, v in one.attributes.items() if _fits(k, v)},
                "planned": one.planned if _fits("the next reset", one.planned) else None,
                "seed": one.seed,
                "num_restarts": one.num_restarts,
                "num_episodes": one.num_episodes,
                "episode": None if episode is None else _about(episode),
            }
        )
    return arrays, about


def unpack(arrays: Mapping[str, Array], about: Sequence[Mapping[str, Any]]) -> list[Memento]:
    """What was packed."""
    return [_memento(env_id, arrays, one) for env_id, one in enumerate(about)]


def _memento(env_id: int, arrays: Mapping[str, Array], about: Mapping[str, Any]) -> Memento:
    episode, planned = about["episode"], about["planned"]
    if episode is not None:
        actions = _all_of(f"env.{env_id}.actions", arrays)
        changes = [(at, name, value) for at, name, value in episode["changes"]]
        episode = Episode(
            **{**episode, "args": ResetArgs(*episode["args"]), "changes": changes},
            actions=actions,
            objects={},
        )
    return Memento(
        observation=tuple(_all_of(f"env.{env_id}.observation", arrays)),
        attributes=dict(about["attributes"]),
        planned=None if planned is None else ResetArgs(*planned),
        seed=about["seed"],
        num_restarts=about["num_restarts"],
        num_episodes=about["num_episodes"],
        episode=episode,
    )


def _about(episode: Episode) -> dict[str, Any]:
    return {
        "args": list(episode.args),
        "generator": episode.generator,
        "changes": [list(one) for one in episode.changes],
        "length": episode.length,
        "episode_return": episode.episode_return,
        "is_over": episode.is_over,
    }


def _is_plain(episode: Episode) -> bool:
    return not episode.objects and _fits("a running episode", _about(episode))


def _fits(what: str, value: Any) -> bool:
    """Whether JSON can hold it."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        log.warning("%s cannot be kept in a checkpoint: %r is more than JSON can hold", what, value)
        return False
    return True


def _named(prefix: str, arrays: Sequence[Array]) -> dict[str, Array]:
    return {f"{prefix}.{k}": array for k, array in enumerate(arrays)}


def _all_of(prefix: str, arrays: Mapping[str, Array]) -> list[Array]:
    found: list[Array] = []
    while (name := f"{prefix}.{len(found)}") in arrays:
        found.append(arrays[name])
    return found
