"""RAM maps: YAML files that say what is where in a game's memory, and what is worth something.

begin:   {restart: 0xC000, seed: 0xC001, seed_bytes: 2, frames: 8}
fields:
  room:  {address: 0xC004, one_hot: 6, meaning: which room}
  lives: {address: 0xD100, scale: 5}
events:
  new_room: {change: room, reward: 1.0}
  death:    {reach: lives, value: 0, reward: -1.0, ends: true}
novel: [room]
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from shoal.envs.gameboy.config import NOVELTY, is_worth
from shoal.envs.gameboy.console import BUTTONS
from shoal.envs.gameboy.events import KINDS, Event
from shoal.envs.gameboy.fields import Field, check_field
from shoal.errors import ConfigError, shown, suggest
from shoal.extras import need

ENCODINGS = ("scale", "one_hot", "bits")


@dataclass(frozen=True, slots=True)
class Begin:
    """How a game gets past its title, and begins anew without being loaded."""

    press: tuple[str | int, ...] = ()
    """What is pressed once after power-on: buttons, and numbers of frames to wait."""
    restart: int | None = None
    """The address that is set to 1. Like that of the seed it is in RAM, from $8000 on."""
    seed: int | None = None
    """Where the game takes a random number from."""
    seed_bytes: int = 2
    frames: int = 8
    """Until it has begun anew."""


@dataclass(frozen=True, slots=True)
class RamMap:
    """What is known about a game's memory."""

    fields: tuple[Field, ...] = ()
    events: tuple[Event, ...] = ()
    begin: Begin | None = None
    novel: tuple[str, ...] = ()
    """Fields that together tell one place from another."""

    def field(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        hint = suggest(name, [field.name for field in self.fields])
        raise ConfigError(f"the RAM map has no field {name!r}. {hint}")

    @classmethod
    def from_mapping(cls, mapping: Any, place: str = "RAM map") -> RamMap:
        """`ConfigError` names the key that is wrong, and `place` (say, the name of a file)."""
        given = _mapping(mapping, place, ("begin", "fields", "events", "novel"))
        fields = tuple(
            _field(name, one, f"{place}: fields: {name}")
            for name, one in _mapping(given.get("fields", {}), f"{place}: fields").items()
        )
        numbers = [field.name for field in fields if field.length == 1]
        events = tuple(
            _event(name, one, numbers, f"{place}: events: {name}")
            for name, one in _mapping(given.get("events", {}), f"{place}: events").items()
        )
        begin = given.get("begin")
        begin = None if begin is None else _begin(begin, f"{place}: begin")
        novel = given.get("novel", [])
        for name in _list(novel, f"{place}: novel"):
            if name not in numbers:
                raise ConfigError(
                    f"{place}: novel: there is no field {name!r} of one number. "
                    f"{suggest(str(name), numbers)}"
                )
        return cls(fields, events, begin, tuple(novel))

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> RamMap:
        """What a file says; it is read once in a process as long as it stays the same."""
        path = Path(path)
        try:
            there = path.stat()
            return _from_yaml(path, there.st_mtime_ns, there.st_size)
        except OSError as problem:
            raise ConfigError(
                f"the RAM map {path} cannot be read: {problem.strerror}."
            ) from problem


@lru_cache(maxsize=8)
def _from_yaml(path: Path, mtime_ns: int, size: int) -> RamMap:
    yaml = need("yaml", "gameboy")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as problem:
        reason = " ".join(str(problem).split())
        raise ConfigError(f"{path} is not valid YAML: {reason}.") from problem
    return RamMap.from_mapping({} if content is None else content, str(path))


def _field(name: str, given: Any, where: str) -> Field:
    known = ("address", "bytes", "bcd", "length", "meaning", *ENCODINGS)
    given = _mapping(given, where, known)
    kinds = [kind for kind in ENCODINGS if kind in given]
    if len(kinds) > 1:
        raise ConfigError(f"{where}: expected one of {', '.join(ENCODINGS)}, got {kinds}.")
    field = Field(
        name,
        address=_whole(given, "address", where),
        kind=kinds[0] if kinds else "hide",
        size=_whole(given, kinds[0], where) if kinds else 0,
        num_bytes=_whole(given, "bytes", where, 1),
        bcd=_flag(given, "bcd", where),
        length=_whole(given, "length", where, 1),
        meaning=str(given.get("meaning", "")),
    )
    return check_field(field, where)


def _event(name: str, given: Any, fields: Iterable[str], where: str) -> Event:
    given = _mapping(given, where, (*KINDS, "value", "reward", "ends"))
    if name == NOVELTY:
        raise ConfigError(f"{where}: so new sights are called. Give the event another name.")
    kinds = [kind for kind in KINDS if kind in given]
    if len(kinds) != 1:
        raise ConfigError(f"{where}: expected one of {', '.join(KINDS)}, got {kinds or 'none'}.")
    kind, field = kinds[0], given[kinds[0]]
    if field not in fields:
        raise ConfigError(f"{where}: there is no field {field!r}. {suggest(field, fields)}")
    if ("value" in given) != (kind == "reach"):
        raise ConfigError(f"{where}: value belongs to reach, and to no other kind.")
    reward = given.get("reward", 0.0)
    if not is_worth(reward):
        raise ConfigError(f"{where}: reward must be a finite number, got {shown(reward)}.")
    value = _whole(given, "value", where, 0)
    return Event(name, kind, field, value, float(reward), _flag(given, "ends", where))


def _begin(given: Any, where: str) -> Begin:
    given = _mapping(given, where, ("press", "restart", "seed", "seed_bytes", "frames"))
    frames = _whole(given, "frames", where, 8)
    seed_bytes = _whole(given, "seed_bytes", where, 2)
    if frames < 1 or not 1 <= seed_bytes <= 4:
        raise ConfigError(f"{where}: expected frames from 1 on and seed_bytes from 1 to 4.")
    press = tuple(_pressed(one, where) for one in _list(given.get("press", []), f"{where}: press"))
    is_restarted = "restart" in given or not press
    restart = _address(given, "restart", where, 1) if is_restarted else None
    if restart is None and "seed" in given:
        raise ConfigError(f"{where}: seed is nothing without restart, the byte that begins anew.")
    seed = _address(given, "seed", where, seed_bytes) if "seed" in given else None
    return Begin(press, restart, seed, seed_bytes, frames)


def _pressed(one: Any, where: str) -> str | int:
    """A button, or how many frames to wait."""
    is_wait = isinstance(one, int) and not isinstance(one, bool) and one > 0
    if one not in BUTTONS and not is_wait:
        raise ConfigError(
            f"{where}: press has {shown(one)}; expected buttons ({', '.join(BUTTONS)}) and numbers "
            "of frames to wait."
        )
    known: str | int = one
    return known


def _address(given: Any, key: str, where: str, num_bytes: int) -> int:
    """Where something can be written: below is the cartridge's ROM, and nothing above."""
    address, last = _whole(given, key, where), 0x10000 - num_bytes
    if not 0x8000 <= address <= last:
        raise ConfigError(
            f"{where}: {key} is ${address:04X}; expected an address in RAM, $8000 to ${last:X}."
        )
    return address


def _mapping(given: Any, where: str, known: Iterable[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: expected settings by name, got {shown(given)}.")
    for key in given if known is not None else ():
        if key not in (known := list(known or ())):
            raise ConfigError(f"{where}: unknown key {key!r}. {suggest(key, known)}")
    return given


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise ConfigError(f"{where}: expected a list, got {shown(given)}.")
    return given


def _whole(given: Mapping[str, Any], key: str, where: str, default: int | None = None) -> int:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{where}: {key} must be a whole number, got {shown(value)}.")
    return value


def _flag(given: Mapping[str, Any], key: str, where: str) -> bool:
    value = given.get(key, False)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: {key} must be true or false, got {shown(value)}.")
    return value
