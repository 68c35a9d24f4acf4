"""Settings of a run: typed dataclasses, filled from YAML, from Python and from the command line.

A field's meaning stands beneath it, once; help and run files quote it. Fields are int, float,
bool, str, Path, Literal, Enum (by value), tuples and lists of these, any of them or None,
`dict[str, Any]` for free keyword arguments, or a group: another dataclass of this kind.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from shoal.errors import ConfigError
from shoal.training.settings import document
from shoal.training.settings.assemble import build, collect, complete, nowhere
from shoal.training.settings.flags import parse, peek
from shoal.training.settings.kinds import Unfit, complaint, convert, plain
from shoal.training.settings.schema import Entry, entries_of

__all__ = ["dump_yaml", "from_mapping", "load_yaml", "override", "parse", "peek", "to_mapping"]

T = TypeVar("T")


def from_mapping(cls: type[T], mapping: Mapping[str, Any], place: str = "") -> T:
    """Settings of a group may stand in it, or above it.

    `ConfigError` tells all mistakes at once, with `place` (say, the name of a file).
    """
    values = collect(cls, mapping, lambda keys: f" in {place}" if place else "")
    return build(cls, complete(cls, values), place)


def to_mapping(config: Any) -> dict[str, Any]:
    """All settings, in order, as JSON and YAML can hold them; `ConfigError` if they cannot."""
    return {
        entry.name: to_mapping(held) if entry.is_group else _plain(entry, held)
        for entry, held in ((one, getattr(config, one.name)) for one in entries_of(type(config)))
    }


def load_yaml(cls: type[T], path: str | os.PathLike[str]) -> T:
    """What a file says, and defaults for the rest; `ConfigError` tells all mistakes at once."""
    found = document.read(Path(path))
    values = collect(cls, found.content, found.where, found.repeated)
    return build(cls, complete(cls, values), found.place)


def dump_yaml(config: Any) -> str:
    """A file that explains itself, and that `load_yaml` reads back as an equal object."""
    return document.write(type(config), to_mapping(config))


def override(config: T, /, **changes: Any) -> T:
    """Like `dataclasses.replace`, but finds settings in whichever group they are."""
    cls = type(config)
    return build(cls, complete(cls, collect(cls, changes, nowhere), config))


def _plain(entry: Entry, value: Any) -> Any:
    try:
        return plain(convert(entry.kind, value))
    except Unfit:
        raise ConfigError(f"{entry.name} {complaint(entry.kind, value)}") from None
