"""Environments registered in the caller, made known to workers."""

from __future__ import annotations

from typing import Any

import gymnasium

from shoal.engine.parcel import Parcel, Store, pack
from shoal.errors import ConfigError


def registered(store: Store) -> Parcel:
    """Everything in Gymnasium's registry that did not come with Gymnasium itself."""
    added = {
        name: spec
        for name, spec in gymnasium.registry.items()
        if not str(spec.entry_point).startswith("gymnasium.envs.") or spec.kwargs
    }
    try:
        return pack(added, store)
    except ConfigError:
        return pack({name: spec for name, spec in added.items() if _travels(spec, store)}, store)


def _travels(spec: Any, store: Store) -> bool:
    try:
        pack(spec, store)
    except ConfigError:
        return False
    return True


def adopt(added: dict[str, Any]) -> None:
    """Register what the caller had registered; its word counts."""
    gymnasium.registry.update(added)
