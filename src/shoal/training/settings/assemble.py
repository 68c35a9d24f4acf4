"""From named values to a configuration: collect and check them, fill in the rest, build.

Every mistake is told, not only the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from typing import Any, TypeVar

from shoal.errors import ConfigError, shown, suggest
from shoal.training.settings.kinds import Unfit, complaint, convert
from shoal.training.settings.schema import Entry, Keys, entries_of, schema_of

T = TypeVar("T")
Where = Callable[[Keys], str]
"""Where a key stands, as in " in run.yaml, line 3"; nothing if that goes without saying."""


def nowhere(keys: Keys) -> str:
    """Of values that come from no file."""
    return ""


class Collection:
    """The settings that a mapping gives, by name, and all that is wrong with it."""

    def __init__(self, where: Where, problems: Sequence[str] = ()) -> None:
        self.values: dict[str, Any] = {}
        self.problems = list(problems)
        self._where = where

    def take(self, cls: type[Any], mapping: Mapping[str, Any], above: Keys = ()) -> None:
        """Settings may stand in their group or anywhere above it."""
        schema = schema_of(cls)
        for name, value in mapping.items():
            keys = (*above, name)
            if name in schema.groups:
                self._take_group(schema.groups[name], value, keys)
            elif name in schema.settings:
                self._take_setting(schema.settings[name], value, keys)
            else:
                place, advice = self._where(keys), suggest(name, _names(cls))
                self.problems.append(f"unknown key {_dotted(keys)!r}{place}. {advice}")

    def _take_group(self, group: Entry, value: Any, keys: Keys) -> None:
        if isinstance(value, group.kind):
            value = {entry.name: getattr(value, entry.name) for entry in entries_of(group.kind)}
        if isinstance(value, Mapping):
            self.take(group.kind, value, keys)
        else:
            self._complain(keys, f"must hold settings by name, got {shown(value)}.")

    def _take_setting(self, setting: Entry, value: Any, keys: Keys) -> None:
        if setting.name in self.values:
            self._complain(keys, "is given a second time. Keep one of the two.")
        try:
            self.values[setting.name] = convert(setting.kind, value)
        except Unfit:
            self._complain(keys, complaint(setting.kind, value))

    def _complain(self, keys: Keys, ending: str) -> None:
        self.problems.append(f"{_dotted(keys)}{self._where(keys)} {ending}")


def collect(
    cls: type[Any], mapping: Mapping[str, Any], where: Where, problems: Sequence[str] = ()
) -> dict[str, Any]:
    """The settings of a nested mapping by name; `ConfigError` with these problems and its own."""
    collection = Collection(where, problems)
    collection.take(cls, mapping)
    _refuse(collection.problems)
    return collection.values


def complete(cls: type[Any], values: Mapping[str, Any], base: Any = None) -> dict[str, Any]:
    """All settings by name: as given, else as in `base`, else their defaults, where they have one.

    `base` is a configuration of this class.
    """
    found: dict[str, Any] = {}
    for entry in entries_of(cls):
        held = entry.default() if base is None else getattr(base, entry.name)
        if entry.is_group:
            found |= complete(entry.kind, values, None if held is MISSING else held)
        elif entry.name in values:
            found[entry.name] = values[entry.name]
        elif held is not MISSING:
            found[entry.name] = held
    return found


def build(cls: type[T], values: Mapping[str, Any], place: str = "") -> T:
    """A configuration from all of its settings; what `__post_init__` refuses is told with `place`.

    An empty `place` is not mentioned.
    """
    missing = [name for name in schema_of(cls).settings if name not in values]
    where = f" in {place}" if place else ""
    _refuse([f"{name} is missing{where}. It has no default: say what it is." for name in missing])
    problems: list[ConfigError] = []
    built = _build(cls, values, problems)
    prefix = f"{place}: " if place else ""
    _refuse([f"{prefix}{problem}" for problem in problems], problems)
    return built  # type: ignore[return-value]


def _build(cls: type[T], values: Mapping[str, Any], problems: list[ConfigError]) -> T | None:
    before = len(problems)
    arguments = {
        entry.name: _build(entry.kind, values, problems) if entry.is_group else values[entry.name]
        for entry in entries_of(cls)
    }
    if len(problems) > before:
        return None
    try:
        return cls(**arguments)
    except ConfigError as problem:
        problems.append(problem)
        return None


def _refuse(problems: Sequence[str], causes: Sequence[Exception] = ()) -> None:
    if not problems:
        return
    cause = causes[0] if causes else None
    if len(problems) == 1:
        raise ConfigError(problems[0]) from cause
    listed = "".join(f"\n- {problem}" for problem in problems)
    raise ConfigError(f"{len(problems)} mistakes:{listed}") from cause


def _names(cls: type[Any]) -> list[str]:
    schema = schema_of(cls)
    return [*schema.settings, *schema.groups]


def _dotted(keys: Sequence[Any]) -> str:
    return ".".join(map(str, keys))
