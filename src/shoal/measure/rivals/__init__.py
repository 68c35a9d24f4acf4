"""Who can be measured: Shoal on each backend, and its peers, one small file each.

Each file has a tuple `CONTESTANTS`; the package that it wraps is imported when one is opened.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from shoal.errors import ConfigError, suggest
from shoal.measure.session import Contestant, Family

FILES = (
    "shoal",
    "gymnasium",
    "sb3",
    "pufferlib",
    "tianshou",
    "torchrl",
    "envpool",
    "pettingzoo",
    "agilerl",
    "supersuit",
)


def contestants() -> Iterator[Contestant]:
    """All that are known, installed or not; Shoal's first."""
    for name in FILES:
        yield from importlib.import_module(f"{__name__}.{name}").CONTESTANTS


def find(name: str) -> Contestant:
    """A contestant by its name, or as "module:contestant"."""
    module, colon, attribute = name.partition(":")
    if colon:
        found = getattr(importlib.import_module(module), attribute)
        assert isinstance(found, Contestant)
        return found
    # One file only: what another one imports must not count as this one's start-up.
    file = name.split()[0]
    if file in FILES:
        for one in importlib.import_module(f"{__name__}.{file}").CONTESTANTS:
            if one.name == name:
                return one  # type: ignore[no-any-return]
    raise ConfigError(
        f"there is no contestant {name!r}. {suggest(name, [one.name for one in contestants()])}"
    )


def family_of(name: str) -> Family:
    """Of a contestant by name; one that is not known here is a rival."""
    try:
        return find(name).family
    except ConfigError:
        return "rival"
