"""The shape of a configuration: its settings, the groups they are in, and what they mean.

A configuration is a dataclass. Each field is a setting (a plain value) or a group (a dataclass like
this one). A name occurs once, whatever the group, so that a setting can be named without its group.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from shoal.training.settings.kinds import is_settable

Keys = tuple[str, ...]
"""The way to a setting: names of groups, then its own."""
RESERVED = ("config", "help")
"""Flags of every command line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A field of a configuration."""

    field: Field[Any]
    kind: Any
    """The type of a setting, the class of a group."""
    meaning: str
    """What stands beneath the field, on one line; else what the class of a group says of itself."""

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def is_group(self) -> bool:
        return is_dataclass(self.kind)

    def default(self) -> Any:
        """What it holds if nobody says anything; `dataclasses.MISSING` where somebody must."""
        make = self.field.default_factory
        return self.field.default if make is MISSING else make()


class Schema(NamedTuple):
    """All settings and all groups of a configuration by name, however deep they lie."""

    settings: dict[str, Entry]
    groups: dict[str, Entry]


def schema_of(cls: type[Any]) -> Schema:
    """TypeError where a name occurs twice, or a field cannot be read from a file."""
    key: Any = cls  # mypy takes no class for hashable
    return _schema_of(key)


def entries_of(cls: type[Any]) -> tuple[Entry, ...]:
    """The fields of a configuration, in order, without those of its groups."""
    key: Any = cls
    return _entries_of(key)


@cache
def _schema_of(cls: Any) -> Schema:
    schema = Schema({}, {})
    places: dict[str, str] = {}
    for place, entry in _walk(cls, cls.__name__):
        if entry.name in RESERVED:
            raise TypeError(f"{place} needs another name: --{entry.name} is a flag already.")
        if entry.name in places:
            raise TypeError(
                f"{places[entry.name]} and {place} have the same name. Flags and files name "
                "settings without their group: rename one of them."
            )
        if not entry.is_group and not is_settable(entry.kind):
            raise TypeError(f"{place} is of type {entry.kind}, which no file can hold.")
        places[entry.name] = place
        (schema.groups if entry.is_group else schema.settings)[entry.name] = entry
    return schema


@cache
def _entries_of(cls: Any) -> tuple[Entry, ...]:
    if not is_dataclass(cls):
        raise TypeError(f"a configuration must be a dataclass, not {cls!r}.")
    kinds = get_type_hints(cls)
    meanings = _meanings(cls)
    return tuple(
        Entry(field, kinds[field.name], meanings.get(field.name) or _meaning_of(kinds[field.name]))
        for field in fields(cls)
        if field.init
    )


def _walk(cls: type[Any], place: str) -> Iterator[tuple[str, Entry]]:
    for entry in entries_of(cls):
        yield f"{place}.{entry.name}", entry
        if entry.is_group:
            yield from _walk(entry.kind, f"{place}.{entry.name}")


def _meaning_of(kind: Any) -> str:
    """What a group says of itself; nothing for a setting."""
    tree = _tree_of(kind) if is_dataclass(kind) else None
    doc = ast.get_docstring(tree) if tree else None
    return _on_one_line((doc or "").partition("\n\n")[0])


def _meanings(cls: Any) -> dict[str, str]:
    """The texts beneath the fields, also of those that are inherited."""
    found = {}
    for one in reversed(cls.__mro__):
        tree = _tree_of(one) if is_dataclass(one) else None
        for field, text in itertools.pairwise(tree.body if tree else ()):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            ):
                found[field.target.id] = _on_one_line(text.value.value)
    return found


def _tree_of(cls: Any) -> ast.ClassDef | None:
    """The source of a class; None for one that was typed into an interpreter."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, ValueError, SyntaxError):
        return None
    return tree if isinstance(tree, ast.ClassDef) else None


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
