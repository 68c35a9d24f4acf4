"""Assembly source as statements: one for each line that says something.

    label:  operation operand, operand   ; comment      ;; a note, which is kept

A note belongs to the label of its line. Strings hold no escapes. `INCLUDE "file"` is replaced by
that file, which is looked for beside the one that names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import ConfigError

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_LABEL = re.compile(rf"(\.?{NAME}):")
_CONSTANT = re.compile(rf"({NAME})\s+EQU\b", re.IGNORECASE)


class AssemblyError(ConfigError):
    """What cannot be assembled, with the file and the line."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a statement stands."""

    file: str
    line: int

    def error(self, message: str) -> AssemblyError:
        return AssemblyError(f"{self.file}:{self.line}: {message}")


@dataclass(frozen=True, slots=True)
class Statement:
    """One line, taken apart. `operation` is in lower case, and "" where there is only a label."""

    place: Place
    label: str
    operation: str
    operands: tuple[str, ...]
    note: str


def read(path: Path) -> Iterator[Statement]:
    """The statements of a file and of those that it includes, in order."""
    yield from _read(path, ())


def parse(text: str, file: str = "source") -> Iterator[Statement]:
    """The statements of a text; an INCLUDE among them stays a statement."""
    for number, line in enumerate(text.splitlines(), start=1):
        statement = _parse_line(line, Place(file, number))
        if statement is not None:
            yield statement


def text_of(operand: str, place: Place) -> str:
    """What stands between the quotation marks of a string."""
    if not is_text(operand):
        raise place.error(f"expected a string in quotation marks, got {operand!r}.")
    return operand[1:-1]


def is_text(operand: str) -> bool:
    return len(operand) >= 2 and operand[0] == operand[-1] == '"'


def _read(path: Path, above: tuple[Path, ...]) -> Iterator[Statement]:
    if path in above:
        raise AssemblyError(f"{path} includes itself, by way of {above[-1]}.")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise AssemblyError(f"{path} cannot be read: {problem.strerror}.") from problem
    for statement in parse(text, path.name):
        if statement.operation != "include":
            yield statement
        else:
            if len(statement.operands) != 1:
                raise statement.place.error('expected INCLUDE "file".')
            name = text_of(statement.operands[0], statement.place)
            yield from _read(path.parent / name, (*above, path))


def _parse_line(line: str, place: Place) -> Statement | None:
    code, note = _split_comment(line, place)
    label = ""
    if found := _LABEL.match(code):
        label, code = found[1], code[found.end() :].strip()
    elif found := _CONSTANT.match(code):
        return Statement(place, found[1], "equ", (code[found.end() :].strip(),), note)
    if not code and not label:
        return None
    operation, _, rest = code.partition(" ")
    return Statement(place, label, operation.lower(), _split_operands(rest, place), note)


def _split_comment(line: str, place: Place) -> tuple[str, str]:
    at = _find_outside(line, ";", place)
    if at is None:
        return line.strip(), ""
    comment = line[at:]
    return line[:at].strip(), comment[2:].strip() if comment.startswith(";;") else ""


def _split_operands(text: str, place: Place) -> tuple[str, ...]:
    operands = []
    while (at := _find_outside(text, ",", place)) is not None:
        operands.append(text[:at].strip())
        text = text[at + 1 :]
    if text.strip() or operands:
        operands.append(text.strip())
    if "" in operands:
        raise place.error("expected an operand between two commas.")
    return tuple(operands)


def _find_outside(text: str, wanted: str, place: Place) -> int | None:
    """Where this character first stands outside of a string and of a character in quotes."""
    at = 0
    while at < len(text):
        if text[at] == wanted:
            return at
        if text[at] == '"':
            end = text.find('"', at + 1)
            if end < 0:
                raise place.error("a string has no closing quotation mark.")
            at = end
        elif text[at] == "'" and text[at + 2 : at + 3] == "'":
            at += 2
        at += 1
    return None
