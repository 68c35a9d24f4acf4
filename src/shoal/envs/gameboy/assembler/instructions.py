"""The 500 instructions of the SM83, the processor of the Game Boy, as one table.

An instruction is found by its name and the *shapes* of its operands: a register or condition as it
is written (`a`, `[hl+]`, `nz`), `n` for a number, `[n]` for a number in brackets, `sp+n`. What
becomes of the number is its slot: a byte, a word, a distance, or bits of the opcode itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

R8 = ("b", "c", "d", "e", "h", "l", "[hl]", "a")
R16 = ("bc", "de", "hl", "sp")
STACKED = ("bc", "de", "hl", "af")
POINTERS = ("[bc]", "[de]", "[hl+]", "[hl-]")
CONDITIONS = ("nz", "z", "nc", "c")
ARITHMETIC = ("add", "adc", "sub", "sbc", "and", "xor", "or", "cp")
ROTATIONS = ("rlc", "rrc", "rl", "rr", "sla", "sra", "swap", "srl")
PLAIN = {
    "nop": 0x00, "rlca": 0x07, "rrca": 0x0F, "rla": 0x17, "rra": 0x1F, "daa": 0x27, "cpl": 0x2F,
    "scf": 0x37, "ccf": 0x3F, "halt": 0x76, "ret": 0xC9, "reti": 0xD9, "di": 0xF3, "ei": 0xFB,
}  # fmt: skip
PREFIX = 0xCB


class Slot(Enum):
    """Where the number of an instruction goes."""

    NONE = "nothing"
    BYTE = "a number from -128 to 255"
    WORD = "a number from -32768 to 65535"
    SIGNED = "a number from -128 to 127"
    RELATIVE = "an address at most 128 bytes before or 127 after the next instruction"
    HIGH = "an address from $FF00 to $FFFF, or a number from 0 to 255"
    BIT = "a bit from 0 to 7"
    VECTOR = "one of $00, $08, $10, $18, $20, $28, $30, $38"
    STOP = "no number, but a byte 0"

    @property
    def num_bytes(self) -> int:
        return {Slot.NONE: 0, Slot.BIT: 0, Slot.VECTOR: 0, Slot.WORD: 2}.get(self, 1)


@dataclass(frozen=True, slots=True)
class Form:
    """One instruction with one choice of operands."""

    opcode: tuple[int, ...]
    slot: Slot = Slot.NONE

    @property
    def num_bytes(self) -> int:
        return len(self.opcode) + self.slot.num_bytes

    def encode(self, value: int, address: int) -> bytes:
        """The bytes at this address; ValueError where the number does not fit."""
        last = self.opcode[-1]
        if self.slot is Slot.RELATIVE:
            value -= address + self.num_bytes
        if self.slot is Slot.HIGH and 0xFF00 <= value <= 0xFFFF:
            value -= 0xFF00
        low, high = _RANGES.get(self.slot, (0, 0))
        if not low <= value <= high or (self.slot is Slot.VECTOR and value % 8):
            raise ValueError(self.slot.value)
        if self.slot in (Slot.BIT, Slot.VECTOR):
            last += value * 8 if self.slot is Slot.BIT else value
            value = 0
        number = (value & 0xFFFF).to_bytes(2, "little")[: self.slot.num_bytes]
        return bytes((*self.opcode[:-1], last)) + number


_RANGES = {
    Slot.BYTE: (-128, 255),
    Slot.WORD: (-32768, 65535),
    Slot.SIGNED: (-128, 127),
    Slot.RELATIVE: (-128, 127),
    Slot.HIGH: (0, 255),
    Slot.BIT: (0, 7),
    Slot.VECTOR: (0, 0x38),
}

Key = tuple[str, tuple[str, ...]]


def _loads() -> Iterator[tuple[Key, Form]]:
    for row, target in enumerate(R8):
        yield ("ld", (target, "n")), Form((0x06 + 8 * row,), Slot.BYTE)
        for column, source in enumerate(R8):
            if target != "[hl]" or source != "[hl]":  # whose place halt has taken
                yield ("ld", (target, source)), Form((0x40 + 8 * row + column,))
    for row, pair in enumerate(R16):
        yield ("ld", (pair, "n")), Form((0x01 + 16 * row,), Slot.WORD)
    for row, pointer in enumerate(POINTERS):
        yield ("ld", (pointer, "a")), Form((0x02 + 16 * row,))
        yield ("ld", ("a", pointer)), Form((0x0A + 16 * row,))
    yield ("ld", ("[n]", "sp")), Form((0x08,), Slot.WORD)
    yield ("ld", ("[n]", "a")), Form((0xEA,), Slot.WORD)
    yield ("ld", ("a", "[n]")), Form((0xFA,), Slot.WORD)
    yield ("ldh", ("[n]", "a")), Form((0xE0,), Slot.HIGH)
    yield ("ldh", ("a", "[n]")), Form((0xF0,), Slot.HIGH)
    yield ("ldh", ("[c]", "a")), Form((0xE2,))
    yield ("ldh", ("a", "[c]")), Form((0xF2,))
    yield ("ld", ("hl", "sp+n")), Form((0xF8,), Slot.SIGNED)
    yield ("ld", ("sp", "hl")), Form((0xF9,))
    for row, pair in enumerate(STACKED):
        yield ("pop", (pair,)), Form((0xC1 + 16 * row,))
        yield ("push", (pair,)), Form((0xC5 + 16 * row,))


def _arithmetic() -> Iterator[tuple[Key, Form]]:
    for row, register in enumerate(R8):
        yield ("inc", (register,)), Form((0x04 + 8 * row,))
        yield ("dec", (register,)), Form((0x05 + 8 * row,))
    for row, pair in enumerate(R16):
        yield ("inc", (pair,)), Form((0x03 + 16 * row,))
        yield ("dec", (pair,)), Form((0x0B + 16 * row,))
        yield ("add", ("hl", pair)), Form((0x09 + 16 * row,))
    for row, name in enumerate(ARITHMETIC):
        yield (name, ("a", "n")), Form((0xC6 + 8 * row,), Slot.BYTE)
        for column, register in enumerate(R8):
            yield (name, ("a", register)), Form((0x80 + 8 * row + column,))
    yield ("add", ("sp", "n")), Form((0xE8,), Slot.SIGNED)


def _jumps() -> Iterator[tuple[Key, Form]]:
    yield ("jr", ("n",)), Form((0x18,), Slot.RELATIVE)
    yield ("jp", ("n",)), Form((0xC3,), Slot.WORD)
    yield ("jp", ("hl",)), Form((0xE9,))
    yield ("call", ("n",)), Form((0xCD,), Slot.WORD)
    yield ("rst", ("n",)), Form((0xC7,), Slot.VECTOR)
    for row, condition in enumerate(CONDITIONS):
        yield ("jr", (condition, "n")), Form((0x20 + 8 * row,), Slot.RELATIVE)
        yield ("ret", (condition,)), Form((0xC0 + 8 * row,))
        yield ("jp", (condition, "n")), Form((0xC2 + 8 * row,), Slot.WORD)
        yield ("call", (condition, "n")), Form((0xC4 + 8 * row,), Slot.WORD)


def _rest() -> Iterator[tuple[Key, Form]]:
    for name, opcode in PLAIN.items():
        yield (name, ()), Form((opcode,))
    yield ("stop", ()), Form((0x10,), Slot.STOP)
    for column, register in enumerate(R8):
        for row, name in enumerate(ROTATIONS):
            yield (name, (register,)), Form((PREFIX, 8 * row + column))
        for row, name in enumerate(("bit", "res", "set"), start=1):
            yield (name, ("n", register)), Form((PREFIX, 0x40 * row + column), Slot.BIT)


INSTRUCTIONS: dict[Key, Form] = dict([*_loads(), *_arithmetic(), *_jumps(), *_rest()])
"""By name and shapes of operands; each way to write an instruction once."""

NAMES = frozenset(name for name, _ in INSTRUCTIONS)

_FIXED = {shape for _, shapes in INSTRUCTIONS for shape in shapes} - {"n", "[n]", "sp+n"}
_SPELLINGS = {"[hli]": "[hl+]", "[hld]": "[hl-]", "[$ff00+c]": "[c]"}


def shape_of(operand: str) -> tuple[str, str]:
    """The shape of an operand, and its number as it is written ("" where it has none)."""
    tight = re.sub(r"\s+", "", operand).lower()
    tight = _SPELLINGS.get(tight, tight)
    if tight in _FIXED:
        return tight, ""
    if tight.startswith(("sp+", "sp-")):
        rest = operand[operand.lower().index("sp") + 2 :].strip()
        return "sp+n", rest[1:] if rest.startswith("+") else rest
    if operand.startswith("[") and operand.endswith("]"):
        return "[n]", operand[1:-1]
    return "n", operand


def find(name: str, shapes: tuple[str, ...]) -> Form | None:
    """The instruction of this name with such operands; `and b` is short for `and a, b`."""
    form = INSTRUCTIONS.get((name, shapes))
    if form is None and name in ARITHMETIC and len(shapes) == 1:
        return INSTRUCTIONS.get((name, ("a", *shapes)))
    return form


def choices(name: str) -> str:
    """How an instruction of this name may be written, for messages."""
    ways = [", ".join(shapes) or "no operand" for known, shapes in INSTRUCTIONS if known == name]
    return " | ".join(ways[:12]) + (" | ..." if len(ways) > 12 else "")
