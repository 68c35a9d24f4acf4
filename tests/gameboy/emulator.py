"""Programs on a bare Game Boy, to see what the processor makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.envs.gameboy.assembler import assemble
from shoal.envs.gameboy.console import Console

FRAMES = 75
"""PyBoy's boot ROM takes 65 of them."""

PROGRAM = """
        SECTION ROM, $0100
        nop
        jp Start
        SECTION ROM, $0150
Start:  di
        ld sp, $DFF0
        xor a
        ld b, a
        ld c, a
        ld d, a
        ld e, a
        ld h, a
        ld l, a
{code}
Done:   jr Done
"""


@dataclass(frozen=True)
class Halted:
    """The registers, and the memory, of a program that is through."""

    registers: dict[str, int]
    memory: Any


def run(code: str) -> Halted:
    """Assemble and run; every register but SP is 0 at the start of the code, and F is $80."""
    console = Console(assemble(PROGRAM.format(code=code), "TEST").rom)
    console.advance(FRAMES, draw=False)
    register = console._pyboy.register_file
    names = ("A", "F", "B", "C", "D", "E", "HL", "SP")
    registers = {name.lower(): getattr(register, name) for name in names}
    return Halted(registers, {at: console.memory[at] for at in range(0xC000, 0xC020)})
