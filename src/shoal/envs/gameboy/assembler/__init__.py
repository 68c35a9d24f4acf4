"""A small assembler for the Game Boy's processor, in two passes.

    assembly = assemble(Path("game/main.asm"), title="TIDEKEEP")
    assembly.rom, assembly.symbols["wRoom"]

Reading order: `source` (lines), `expression` (numbers), `instructions` (the table), `program` (the
passes and the directives), `cartridge` (the header).
"""

from __future__ import annotations

from shoal.envs.gameboy.assembler.program import Assembly, Variable, assemble
from shoal.envs.gameboy.assembler.source import AssemblyError

__all__ = ["Assembly", "AssemblyError", "Variable", "assemble"]
