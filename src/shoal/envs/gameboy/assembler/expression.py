"""Numbers as they are written in assembly source.

Decimal, `$1F`, `%1010`, `'c'` (through the character map), names, `@` (the address of this
statement), `HIGH(x)`, `LOW(x)`, brackets, and from loosest to tightest:

    |    ^    &    << >>    + -    * / %    - ~ (one operand)
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shoal.envs.gameboy.assembler.source import NAME, Place
from shoal.errors import suggest

_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.floordiv, "%": operator.mod},
)
_ATOM = re.compile(
    rf"\s*(?:\$(?P<hex>[0-9A-Fa-f_]+)|%(?P<binary>[01_]+)|(?P<decimal>[0-9][0-9_]*)"
    rf"|'(?P<character>.)'|(?P<here>@)|(?P<name>\.?{NAME}(?:\.{NAME})?))"
)
_OPERATOR = re.compile(r"\s*(<<|>>|[|^&+\-*/%])")
_FUNCTIONS: dict[str, Callable[[int], int]] = {
    "high": lambda value: value >> 8 & 0xFF,
    "low": lambda value: value & 0xFF,
}


class Undefined(Exception):
    """A name that has no value, or none yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean where an expression stands."""

    names: Mapping[str, int]
    characters: Mapping[str, int]
    here: int
    parent: str
    """The label that local ones (`.again`) belong to."""

    def look_up(self, name: str) -> int:
        whole = self.parent + name if name.startswith(".") else name
        if whole not in self.names:
            raise Undefined(whole)
        return self.names[whole]


def evaluate(text: str, scope: Scope, place: Place) -> int:
    """The value of an expression; AssemblyError where it has none."""
    try:
        return attempt(text, scope, place)
    except Undefined as problem:
        hint = suggest(problem.name, scope.names) if scope.names else ""
        hint = hint if hint.startswith("Did") else "Is it defined (labels end with a colon)?"
        raise place.error(f"{problem.name} has no value here. {hint}") from None


def attempt(text: str, scope: Scope, place: Place) -> int:
    """As `evaluate`, but `Undefined` for a name that is not known (yet)."""
    reader = _Reader(text, scope, place)
    value = reader.level(0)
    if text[reader.at :].strip():
        raise place.error(f"expected an operator, got {text[reader.at :].strip()!r} in {text!r}.")
    return value


class _Reader:
    """Reads an expression from left to right, one function call for each level."""

    def __init__(self, text: str, scope: Scope, place: Place) -> None:
        self.text, self.at = text, 0
        self._scope, self._place = scope, place

    def level(self, number: int) -> int:
        if number == len(_LEVELS):
            return self._unary()
        value = self.level(number + 1)
        while (found := _OPERATOR.match(self.text, self.at)) and found[1] in _LEVELS[number]:
            self.at = found.end()
            value = self._apply(_LEVELS[number][found[1]], value, self.level(number + 1))
        return value

    def _apply(self, operation: Callable[[int, int], int], left: int, right: int) -> int:
        try:
            return operation(left, right)
        except (ZeroDivisionError, ValueError) as problem:
            raise self._place.error(f"{self.text!r} has no value: {problem}.") from None

    def _unary(self) -> int:
        if self._take("-"):
            return -self._unary()
        if self._take("~"):
            return ~self._unary()
        if self._take("("):
            return self._bracketed()
        return self._atom()

    def _atom(self) -> int:
        found = _ATOM.match(self.text, self.at)
        if not found:
            got = self.text[self.at :].strip() or "nothing"
            raise self._place.error(f"expected a number or a name, got {got!r} in {self.text!r}.")
        self.at = found.end()
        kind, written = str(found.lastgroup), found[str(found.lastgroup)]
        if kind == "here":
            return self._scope.here
        if kind == "character":
            return self._scope.characters.get(written, ord(written))
        if kind != "name":
            return int(written.replace("_", ""), {"hex": 16, "binary": 2, "decimal": 10}[kind])
        if written.lower() in _FUNCTIONS and self._take("("):
            return _FUNCTIONS[written.lower()](self._bracketed())
        return self._scope.look_up(written)

    def _bracketed(self) -> int:
        value = self.level(0)
        if not self._take(")"):
            raise self._place.error(f"a bracket is not closed in {self.text!r}.")
        return value

    def _take(self, character: str) -> bool:
        rest = self.text[self.at :].lstrip()
        if not rest.startswith(character):
            return False
        self.at = len(self.text) - len(rest) + 1
        return True
