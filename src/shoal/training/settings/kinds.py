"""What a setting may hold: is a value of that kind, and if not, what would be?

A kind is the type of a field. Values are taken strictly, but for what files call for: a whole
number is a number too, so is the text "3e-4" (that is how PyYAML reads it), and a list becomes a
tuple where one is wanted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from shoal.errors import shown, suggest

_UNIONS = (Union, UnionType)
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


class Unfit(Exception):
    """A value is not of the kind that it must be."""


class _Plain(NamedTuple):
    words: str
    fits: Callable[[Any], bool]
    make: Callable[[Any], Any]


def _is_int(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    if isinstance(value, str):
        return _EXPONENT.fullmatch(value) is not None
    return isinstance(value, Real) and not isinstance(value, bool)


_PLAIN: dict[Any, _Plain] = {
    NoneType: _Plain("null", lambda value: value is None, lambda value: None),
    bool: _Plain("true or false", lambda value: isinstance(value, bool), bool),
    int: _Plain("a whole number", _is_int, int),
    float: _Plain("a number", _is_float, float),
    # Not str(): what that makes of an enum of texts depends on the enum.
    str: _Plain("text", lambda value: isinstance(value, str), str.__str__),
    Path: _Plain("a path", lambda value: isinstance(value, str | os.PathLike), Path),
}


def convert(kind: Any, value: Any) -> Any:
    """`value` as a setting of this kind holds it; raises `Unfit`."""
    origin = get_origin(kind)
    if origin in _UNIONS:
        return _as_one_of(get_args(kind), value)
    if origin in (tuple, list):
        return origin(_items(kind, value))
    if origin is dict:
        return _as_mapping(value)
    if kind in _PLAIN:
        return _as_plain(_PLAIN[kind], value)
    return _as_option(_options(kind), value)


def is_settable(kind: Any) -> bool:
    """Whether files and command lines can hold it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        return all(is_settable(one) and get_origin(one) is not dict for one in inner)
    if origin in (tuple, list):
        items = [one for one in inner if one is not Ellipsis]
        return bool(items) and all(is_settable(one) and not _holds_several(one) for one in items)
    if origin is dict:
        return inner == (str, Any)
    if kind in _PLAIN:
        return True
    options = list(_options(kind))
    return bool(options) and all(isinstance(one, str | int | float | None) for one, _ in options)


def words(kind: Any) -> str:
    """A kind as people would name it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        return " or ".join(words(one) for one in inner)
    if origin is list or (origin is tuple and inner[-1] is Ellipsis):
        return f"a list (each {words(inner[0])})"
    if origin is tuple:
        return f"a list of {len(inner)} ({', '.join(words(one) for one in inner)})"
    if origin is dict:
        return "a mapping of names to plain values"
    if kind in _PLAIN:
        return _PLAIN[kind].words
    return f"one of {', '.join(repr(option) for option, _ in _options(kind))}"


def complaint(kind: Any, value: Any) -> str:
    """What is wrong with an unfit value: the end of a sentence that its name begins."""
    kinds = [one for one in _members(kind) if one is not NoneType]
    if all(map(_options, kinds)):
        options = [str(option) for one in kinds for option, _ in _options(one)]
        return f"is {shown(value)}. {suggest(value, options)}"
    is_bare = str in kinds and not isinstance(value, list | tuple | Mapping | None)
    advice = " Put it in quotes." if is_bare else ""
    return f"must be {words(kind)}, got {shown(value)}.{advice}"


def plain(value: Any) -> Any:
    """A setting as files hold it: text, numbers, lists and mappings, none of them shared."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    return value


def _as_plain(kind: _Plain, value: Any) -> Any:
    if not kind.fits(value):
        raise Unfit
    try:
        return kind.make(value)
    except OverflowError:  # a whole number that no float can hold
        raise Unfit from None


def _as_one_of(kinds: Iterable[Any], value: Any) -> Any:
    """As the first kind that it fits, its own type before all others."""
    for kind in sorted(kinds, key=lambda kind: kind is not type(value)):
        try:
            return convert(kind, value)
        except Unfit:
            continue
    raise Unfit


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in _UNIONS else (kind,)


def _options(kind: Any) -> list[tuple[Any, Any]]:
    """What is written and what is meant, of a Literal or an Enum; else empty."""
    if get_origin(kind) is Literal:
        return [(option, option) for option in get_args(kind)]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [(member.value, member) for member in kind]
    return []


def _as_option(options: Iterable[tuple[Any, Any]], value: Any) -> Any:
    for option, meant in options:
        # By type too: 1 is equal to True.
        if value is meant or (type(value) is type(option) and value == option):
            return meant
    raise Unfit


def _items(kind: Any, value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise Unfit
    inner = get_args(kind)
    if get_origin(kind) is list or inner[-1] is Ellipsis:
        inner = inner[:1] * len(value)
    if len(inner) != len(value):
        raise Unfit
    return [convert(one, item) for one, item in zip(inner, value, strict=True)]


def _holds_several(kind: Any) -> bool:
    return any(get_origin(one) in (tuple, list, dict) for one in (kind, *get_args(kind)))


def _as_mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Unfit
    return {convert(str, name): _as_free(one) for name, one in value.items()}


def _as_free(value: Any) -> Any:
    """What JSON and YAML give back as it was: tuples become lists at once."""
    if isinstance(value, list | tuple):
        return [_as_free(one) for one in value]
    if isinstance(value, Mapping):
        return _as_mapping(value)
    return _as_one_of((NoneType, bool, int, str, float), value)
