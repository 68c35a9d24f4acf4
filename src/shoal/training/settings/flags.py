"""The command line: `--config FILE`, then flags, which win.

tyro does the parsing and the help. It is given a mirror of the configuration: the same groups, with
what the file says as defaults and without what a configuration checks of itself, since that can
only be said of all settings together.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_origin

from shoal.errors import ConfigError
from shoal.extras import need
from shoal.training.settings import document
from shoal.training.settings.assemble import build, collect, complete
from shoal.training.settings.kinds import Unfit, convert
from shoal.training.settings.schema import Entry, entries_of, schema_of

T = TypeVar("T")

_CONFIG_HELP = "YAML file with settings. Flags win over it."
_FREE_HELP = "Values are Python literals (3, 0.5, True, None, [1, 2]); anything else is text."


def parse(
    cls: type[T],
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
    description: str | None = None,
    base: T | None = None,
) -> T:
    """A configuration from the command line (`sys.argv` if `arguments` is None).

    What neither flags nor file say is as in `base`, or else the default.

    Exits with code 2 and a message on stderr if something is wrong, with 0 after `--help`. Of
    `dict[str, Any]`, the flag takes `name=value ...` and replaces the whole of it.
    """
    tyro = need("tyro")
    schema_of(cls)
    given = sys.argv[1:] if arguments is None else list(arguments)
    first = _first(prog)
    file = first.parse_known_args(given)[0].config
    markers = (tyro.conf.OmitArgPrefixes, tyro.conf.EnumChoicesFromValues)
    try:
        held = complete(cls, {} if file is None else _values_in(cls, file), base)
        mirror = _mirror(tyro, cls, held, [_config_field(tyro)])
        line = tyro.cli(mirror, args=given, prog=prog, description=description, config=markers)
        return build(cls, _values_of(cls, line))
    except ConfigError as problem:
        first.exit(2, f"{first.prog}: {problem}\n")


def peek(cls: type[Any], name: str, arguments: Sequence[str]) -> Any:
    """What a command line, or else its file, says of one setting on which the others depend.

    None where neither does; what is wrong with either is left for `parse` to tell.
    """
    first = _first(None)
    first.add_argument(f"--{name.replace('_', '-')}", f"--{name}", dest=name)
    given = vars(first.parse_known_args(arguments)[0])
    try:
        told = {} if given["config"] is None else _values_in(cls, given["config"])
    except ConfigError:
        told = {}
    said = given[name]
    return told.get(name) if said is None else None if said == "None" else said


def _first(prog: str | None) -> argparse.ArgumentParser:
    """Finds the file, before all else."""
    first = argparse.ArgumentParser(prog=prog, add_help=False, allow_abbrev=False)
    first.add_argument("--config", metavar="FILE")
    return first


def _values_in(cls: type[Any], file: str) -> dict[str, Any]:
    found = document.read(Path(file))
    return collect(cls, found.content, found.where, found.repeated)


def _values_of(cls: type[Any], line: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for entry in entries_of(cls):
        value = getattr(line, entry.name)
        values |= _values_of(entry.kind, value) if entry.is_group else {entry.name: value}
    return values


# --- the mirror ----------------------------------------------------------------------------------

_MirrorField = tuple[str, Any, Any]


def _mirror(
    tyro: Any, cls: type[Any], held: Mapping[str, Any], more: Sequence[_MirrorField] = ()
) -> type[Any]:
    """A dataclass of the same groups whose defaults are what `held` has."""
    own = [_mirror_field(tyro, entry, held) for entry in entries_of(cls)]
    return dataclasses.make_dataclass(cls.__name__, [*more, *own], kw_only=True)


def _mirror_field(tyro: Any, entry: Entry, held: Mapping[str, Any]) -> _MirrorField:
    if entry.is_group:
        group = _mirror(tyro, entry.kind, held)
        group.__doc__ = entry.meaning
        return entry.name, group, dataclasses.field()
    kind: Any = Annotated[entry.kind, tyro.conf.arg(help=entry.meaning)]
    if get_origin(entry.kind) is dict:
        meaning = tyro.conf.arg(help=f"{entry.meaning} {_FREE_HELP}")
        kind = Annotated[entry.kind, meaning, _free(tyro)]
    if entry.name not in held:
        return entry.name, kind, dataclasses.field()
    value = held[entry.name]
    return entry.name, kind, dataclasses.field(default_factory=lambda: value)


def _config_field(tyro: Any) -> _MirrorField:
    kind = Annotated[Path | None, tyro.conf.arg(help=_CONFIG_HELP, metavar="FILE")]
    return "config", kind, dataclasses.field(default=None)


def _free(tyro: Any) -> Any:
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=VALUE [NAME=VALUE ...]]",
        instance_from_str=_mapping_from,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{name}={one!r}" for name, one in value.items()],
    )


def _mapping_from(words: Sequence[str]) -> dict[str, Any]:
    pairs = [word.partition("=") for word in words]
    for (name, sign, _), word in zip(pairs, words, strict=True):
        if not (name and sign):
            raise ValueError(f"{word!r} must be name=value.")
    names = [name for name, _, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"a name is given twice: {' '.join(words)}.")
    return {name: _literal(text) for name, _, text in pairs}


def _literal(text: str) -> Any:
    try:
        found = ast.literal_eval(text)
        return convert(dict[str, Any], {"": found})[""]
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, Unfit):
        return text
