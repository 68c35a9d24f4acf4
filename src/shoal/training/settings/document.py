"""Configurations as YAML: read with the line of every key, written with the meaning of each."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError
from shoal.extras import need
from shoal.training.settings.schema import Keys, entries_of

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds, and where."""

    place: str
    content: dict[str, Any]
    lines: Mapping[Keys, int]
    repeated: tuple[str, ...]
    """What is to be said of keys that occur twice."""

    def where(self, keys: Keys) -> str:
        line = self.lines.get(keys)
        return f" in {self.place}" if line is None else f" in {self.place}, line {line}"


def read(path: Path) -> Document:
    """Raises `ConfigError` unless the file holds a mapping."""
    yaml = need("yaml")
    text = _text_of(path)
    try:
        content = yaml.safe_load(text)
        found = list(_keys(yaml, yaml.compose(text, Loader=yaml.SafeLoader)))
    # Not only YAMLError: what makes dates and numbers raises ValueError, KeyError and others.
    except Exception as problem:
        raise ConfigError(f"{path} is not valid YAML: {_reason(problem)}.") from problem
    if content is None:
        raise ConfigError(f"{path} is empty. Write one setting a line, as in `seed: 1`.")
    if not isinstance(content, dict):
        raise ConfigError(
            f"{path} must hold settings by name, as in `seed: 1`, got a {type(content).__name__}."
        )
    return Document(str(path), content, dict(found), tuple(_repeated(found, path)))


def write(cls: type[Any], mapping: Mapping[str, Any]) -> str:
    """A whole mapping, as the class orders it, each entry below its meaning."""
    return "\n".join(_lines(cls, mapping, "")) + "\n"


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}. Check the path.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder. Name a YAML file in it.") from None
    except OSError as problem:
        raise ConfigError(f"{path} cannot be read: {problem.strerror}.") from problem
    except UnicodeDecodeError as problem:
        raise ConfigError(f"{path} is not text in UTF-8 (byte {problem.start}).") from problem


def _reason(problem: Exception) -> str:
    mark = getattr(problem, "problem_mark", None)
    text = getattr(problem, "problem", None) or str(problem) or type(problem).__name__
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return where + " ".join(text.split())


def _keys(yaml: Any, node: Any, above: Keys = ()) -> Iterator[tuple[Keys, int]]:
    """Every key below a node, with its line; one that occurs twice comes twice."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        keys = (*above, str(key.value))
        yield keys, key.start_mark.line + 1
        yield from _keys(yaml, value, keys)


def _repeated(found: list[tuple[Keys, int]], path: Path) -> Iterator[str]:
    first: dict[Keys, int] = {}
    for keys, line in found:
        if keys in first and keys[-1] != "<<":  # which takes up another mapping, or several
            name = ".".join(keys)
            yield f"key {name!r} is given twice in {path}: lines {first[keys]} and {line}."
        first[keys] = line


def _lines(cls: type[Any], mapping: Mapping[str, Any], indent: str) -> Iterator[str]:
    for entry in entries_of(cls):
        value = mapping[entry.name]
        comment = f"{indent}# "
        yield from textwrap.wrap(
            entry.meaning, _WIDTH, initial_indent=comment, subsequent_indent=comment
        )
        if entry.is_group and value:
            yield f"{indent}{entry.name}:"
            yield from _lines(entry.kind, value, f"{indent}  ")
        else:
            yield textwrap.indent(_line(entry.name, value), indent)


def _line(name: str, value: Any) -> str:
    text: str = need("yaml").safe_dump(
        {name: value}, default_flow_style=True, sort_keys=False, width=math.inf
    )
    return text.strip()[1:-1]  # without its braces, it is the same in block style
