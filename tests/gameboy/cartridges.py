"""A game of a few instructions, on a cartridge of its own: right and left move a byte."""

from __future__ import annotations

from pathlib import Path

from shoal.envs.gameboy.assembler import assemble

PROGRAM = """
        SECTION ROM, $0100
        nop
        jp Start
        SECTION ROM, $0150
Start:  di
        ld sp, $DFF0
        xor a
        ld [$C000], a           ; where it is
        ld [$C001], a           ; how often a button was pressed
        ld [$C002], a           ; whether it has begun
        {title}
        ld a, 1
        ld [$C002], a
Frame:  ldh a, [$FF44]          ; once a frame, as its last line is through
        cp 144
        jr nz, Frame
.wait:  ldh a, [$FF44]
        cp 144
        jr z, .wait
        ldh a, [$FF0F]          ; the joypad's interrupt, which nobody hears
        and $10
        jr z, .pad
        xor a
        ldh [$FF0F], a
        ld hl, $C001
        inc [hl]
.pad:   ld a, $20
        ldh [$FF00], a
        ldh a, [$FF00]
        ldh a, [$FF00]
        cpl
        ld hl, $C000
        bit 0, a
        jr z, .left
        inc [hl]
.left:  bit 1, a
        jr z, Frame
        ld a, [hl]
        and a
        jr z, Frame
        dec [hl]
        jr Frame
"""
TITLE = """
Title:  ld a, $10
        ldh [$FF00], a
        ldh a, [$FF00]
        ldh a, [$FF00]
        cpl
        and $08
        jr z, Title
"""
"""Until START is pressed."""

MAP = """
fields:
  at: {address: 0xC000, scale: 40}
  presses: {address: 0xC001}
  begun: {address: 0xC002}
events:
  right: {rise: at, reward: 0.25}
  left: {fall: at, reward: -0.25}
  there: {reach: at, value: 40, reward: 5, ends: true}
novel: [at]
"""


def write(folder: Path, title: str = "", ram_map: str = MAP) -> tuple[Path, Path]:
    """The cartridge and its RAM map."""
    rom, path = folder / "slide.gb", folder / "slide.yaml"
    rom.write_bytes(assemble(PROGRAM.format(title=title), "SLIDE").rom)
    path.write_text(ram_map)
    return rom, path
