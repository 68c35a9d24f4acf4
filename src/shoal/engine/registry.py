"""Environments registered in the caller, made known to workers."""

from __future__ import annotations

from typing import Any

import gymnasium

from shoal.engine.parcel import Parcel, Store, pack
from shoal.errors import ConfigError


def registered(store: Store) -> Parcel:
    """Gymnasium's registry, with all that this program has added or changed.

    All of it, for what came with Gymnasium may have been registered anew, with other limits say;
    its own 63 entries are 8 kB.
    """
    specs = dict(gymnasium.registry)
    try:
        return pack(specs, store)
    except ConfigError:
        return pack({name: spec for name, spec in specs.items() if _travels(spec, store)}, store)


def _travels(spec: Any, store: Store) -> bool:
    try:
        pack(spec, store)
    except ConfigError:
        return False
    return True


def adopt(specs: dict[str, Any]) -> None:
    """Register what the caller had registered; its word counts."""
    gymnasium.registry.update(specs)
