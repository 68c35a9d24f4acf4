"""From statements to a ROM, in two passes.

The first gives every label its address, for which it needs no more than the sizes of statements;
the second knows all names and writes bytes. So sizes, constants and the addresses of sections may
only use what is defined above them, and everything else may use any name.

    SECTION ROM, $0150       what follows stands there; in RAM only DS and labels may
    NAME EQU 12              a constant
    DB 1, "text", NAME+1     bytes      DW  words, low byte first      DS 4 or DS 4, 255  room
    CHARMAP "#", WALL        from here on this character means that number
    PX "..++##--"            eight pixels of a tile, light to dark: . - + #
    ART "................"   one of the 16 rows of a picture of four tiles: the left column of two,
                             then the right one, as sprites of 8 × 16 need them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from shoal.envs.gameboy.assembler import cartridge
from shoal.envs.gameboy.assembler.expression import Scope, Undefined, attempt, evaluate
from shoal.envs.gameboy.assembler.instructions import NAMES, choices, find, shape_of
from shoal.envs.gameboy.assembler.source import (
    AssemblyError,
    Place,
    Statement,
    is_text,
    parse,
    read,
    text_of,
)
from shoal.errors import suggest

SHADES = ".-+#"
ART_ROWS = 16
ART_COLUMN_BYTES = 32
_MEMORY = {"rom": range(0x8000), "ram": range(0x8000, 0x10000)}


@dataclass(frozen=True, slots=True)
class Variable:
    """A label in RAM with room behind it."""

    address: int
    num_bytes: int
    note: str


@dataclass(frozen=True, slots=True)
class Assembly:
    """What was assembled."""

    rom: bytes
    symbols: dict[str, int]
    """Labels and constants; local labels as `Label.local`."""
    variables: dict[str, Variable]
    """Labels in RAM that have a note, in order."""


def assemble(source: Path | str, title: str) -> Assembly:
    """Assemble a file, or a text; AssemblyError says where it went wrong."""
    statements = list(read(source) if isinstance(source, Path) else parse(source))
    first = _Pass({}, is_last=False)
    first.run(statements)
    last = _Pass(first.symbols, is_last=True)
    last.run(statements)
    cartridge.write_header(last.rom, title)
    return Assembly(bytes(last.rom), last.symbols, last.variables)


@dataclass
class _Pass:
    """One reading of all statements."""

    known: dict[str, int]
    """What the pass before has found, for names that are used above their definition."""
    is_last: bool
    symbols: dict[str, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    characters: dict[str, int] = field(default_factory=dict)
    rom: bytearray = field(default_factory=lambda: bytearray(cartridge.ROM_BYTES))
    written: dict[int, Place] = field(default_factory=dict)
    address: int = 0
    kind: str = ""
    parent: str = ""
    art_rows: int = 0
    """Of the picture that has begun."""

    def run(self, statements: Iterable[Statement]) -> None:
        for statement in statements:
            if self.art_rows and statement.operation != "art":
                raise statement.place.error(f"expected ART: a picture has {ART_ROWS} rows.")
            if statement.operation == "equ":
                self._define(statement, statement.label, self._now(statement, 0))
                continue
            if statement.label:
                self._label(statement)
            if statement.operation:
                self._carry_out(statement)

    # --- names -------------------------------------------------------------

    def _label(self, statement: Statement) -> None:
        self._check_section(statement)
        name = statement.label
        if name.startswith("."):
            if not self.parent:
                raise statement.place.error(f"{name} is local, but there is no label above it.")
            name = self.parent + name
        else:
            self.parent = name
        self._define(statement, name, self.address)

    def _define(self, statement: Statement, name: str, value: int) -> None:
        if name in self.symbols:
            raise statement.place.error(f"{name} is defined twice. Names must differ.")
        self.symbols[name] = value

    def _scope(self) -> Scope:
        names = self.known | self.symbols if self.is_last else self.symbols
        return Scope(names, self.characters, self.address, self.parent)

    def _now(self, statement: Statement, index: int) -> int:
        """The value of an operand that both passes must know when they meet it."""
        if index >= len(statement.operands):
            raise statement.place.error(f"{statement.operation.upper()} lacks a number.")
        scope = Scope(self.symbols, self.characters, self.address, self.parent)
        return evaluate(statement.operands[index], scope, statement.place)

    def _later(self, text: str, place: Place) -> int:
        """The value of an operand that only the last pass must know."""
        if self.is_last:
            return evaluate(text, self._scope(), place)
        try:
            return attempt(text, self._scope(), place)
        except Undefined:
            return 0

    # --- statements --------------------------------------------------------

    def _carry_out(self, statement: Statement) -> None:
        directive = _DIRECTIVES.get(statement.operation)
        if directive is not None:
            directive(self, statement)
        elif statement.operation in NAMES:
            self._instruction(statement)
        else:
            known = [*NAMES, *_DIRECTIVES]
            hint = suggest(statement.operation, known)
            hint = hint if hint.startswith("Did") else "Expected an instruction or a directive."
            raise statement.place.error(f"there is no {statement.operation!r}. {hint}")

    def _instruction(self, statement: Statement) -> None:
        shapes = [shape_of(operand) for operand in statement.operands]
        form = find(statement.operation, tuple(shape for shape, _ in shapes))
        if form is None:
            got = ", ".join(statement.operands) or "no operand"
            ways = choices(statement.operation)
            raise statement.place.error(
                f"{statement.operation} cannot take {got}; expected {ways}."
            )
        numbers = [number for _, number in shapes if number]
        value = self._later(numbers[0], statement.place) if numbers else 0
        if not self.is_last:
            self._reserve(statement, form.num_bytes)
            return
        try:
            code = form.encode(value, self.address)
        except ValueError as problem:
            raise statement.place.error(
                f"{numbers[0].strip()} is {value}; expected {problem}."
            ) from None
        self._emit(statement, code)

    def _section(self, statement: Statement) -> None:
        kind = statement.operands[0].lower() if statement.operands else ""
        if kind not in _MEMORY or len(statement.operands) != 2:
            raise statement.place.error("expected SECTION ROM, address or SECTION RAM, address.")
        address = self._now(statement, 1)
        if address not in _MEMORY[kind]:
            low, high = _MEMORY[kind][0], _MEMORY[kind][-1]
            raise statement.place.error(
                f"{kind.upper()} is from ${low:04X} to ${high:04X}, got ${address:04X}."
            )
        self.kind, self.address, self.parent = kind, address, ""

    def _bytes(self, statement: Statement) -> None:
        values: list[int] = []
        for operand in statement.operands:
            if is_text(operand):
                text = text_of(operand, statement.place)
                values += [self.characters.get(one, ord(one)) for one in text]
            else:
                values.append(self._later(operand, statement.place))
        self._emit(statement, self._packed(statement, values, 1))

    def _words(self, statement: Statement) -> None:
        values = [self._later(operand, statement.place) for operand in statement.operands]
        self._emit(statement, self._packed(statement, values, 2))

    def _packed(self, statement: Statement, values: list[int], num_bytes: int) -> bytes:
        if not values:
            raise statement.place.error(f"{statement.operation.upper()} lacks a value.")
        most = 256**num_bytes
        for value in values:
            if not -most // 2 <= value < most:
                raise statement.place.error(
                    f"{value} does not fit; expected a number from {-most // 2} to {most - 1}."
                )
        return b"".join((value % most).to_bytes(num_bytes, "little") for value in values)

    def _room(self, statement: Statement) -> None:
        num_bytes = self._now(statement, 0)
        if num_bytes < 0:
            raise statement.place.error(f"DS needs at least 0 bytes, got {num_bytes}.")
        if self.kind == "ram":
            if statement.label and statement.note:
                variable = Variable(self.address, num_bytes, statement.note)
                self.variables[statement.label] = variable
            self._reserve(statement, num_bytes)
        else:
            fill = self._now(statement, 1) if len(statement.operands) > 1 else 0
            self._emit(statement, bytes([fill & 0xFF]) * num_bytes)

    def _pixels(self, statement: Statement) -> None:
        self._emit(statement, self._row(statement, 8))

    def _art(self, statement: Statement) -> None:
        row = self._row(statement, 16)
        left, right = row[:2], row[2:]
        self._emit(statement, left)
        after = self.address
        self.address += ART_COLUMN_BYTES - len(left)
        self._emit(statement, right)
        self.art_rows = (self.art_rows + 1) % ART_ROWS
        if self.art_rows:  # else the next picture follows on the right column
            self.address = after

    def _row(self, statement: Statement, width: int) -> bytes:
        """For every eight pixels the low bits of their shades, then the high bits."""
        text = text_of(statement.operands[0] if statement.operands else "", statement.place)
        if len(text) != width or set(text) - set(SHADES):
            raise statement.place.error(f"expected {width} of {SHADES}, got {text!r}.")
        shades = [SHADES.index(one) for one in text]
        return bytes(
            sum((shade >> plane & 1) << 7 - x for x, shade in enumerate(shades[begin : begin + 8]))
            for begin in range(0, width, 8)
            for plane in (0, 1)
        )

    def _map_character(self, statement: Statement) -> None:
        character = text_of(statement.operands[0] if statement.operands else "", statement.place)
        if len(character) != 1:
            raise statement.place.error(f"expected one character, got {character!r}.")
        self.characters[character] = self._now(statement, 1)

    # --- bytes -------------------------------------------------------------

    def _check_section(self, statement: Statement) -> None:
        if not self.kind:
            raise statement.place.error("expected SECTION before the first label or byte.")

    def _emit(self, statement: Statement, data: bytes) -> None:
        if self.kind == "ram":
            raise statement.place.error("RAM holds only DS: what it begins with, a program writes.")
        begin = self.address
        self._reserve(statement, len(data))
        for address in range(begin, self.address):
            if address in self.written:
                raise statement.place.error(
                    f"${address:04X} is taken already by {self.written[address].file}:"
                    f"{self.written[address].line}. Move one of the sections."
                )
            if address in cartridge.HEADER:
                raise statement.place.error(f"${address:04X} belongs to the header, $0104-$014F.")
            self.written[address] = statement.place
        self.rom[begin : self.address] = data

    def _reserve(self, statement: Statement, num_bytes: int) -> None:
        self._check_section(statement)
        self.address += num_bytes
        end = _MEMORY[self.kind].stop
        if self.address > end:
            raise statement.place.error(
                f"{self.kind.upper()} ends at ${end - 1:04X}; this would reach "
                f"${self.address - 1:04X}."
            )


_DIRECTIVES: dict[str, Callable[[_Pass, Statement], None]] = {
    "section": _Pass._section,
    "db": _Pass._bytes,
    "dw": _Pass._words,
    "ds": _Pass._room,
    "px": _Pass._pixels,
    "art": _Pass._art,
    "charmap": _Pass._map_character,
}

__all__ = ["Assembly", "AssemblyError", "Variable", "assemble"]
