"""Does assembled code do on a Game Boy what it says? One program for each class of instruction."""

from __future__ import annotations

import pytest

from gameboy.emulator import run

Z, N, H, C = 0x80, 0x40, 0x20, 0x10

PROGRAMS: dict[str, tuple[str, dict[str, int]]] = {
    "load bytes": ("ld b, $12\nld c, b\nld d, c\nld a, d", {"a": 0x12, "b": 0x12, "d": 0x12}),
    "load words": ("ld bc, $1234\nld de, $5678", {"b": 0x12, "c": 0x34, "d": 0x56, "e": 0x78}),
    "through hl": ("ld hl, $C000\nld [hl], $7F\nld e, [hl]", {"e": 0x7F, "hl": 0xC000}),
    "hl counting": (
        "ld hl, $C000\nld a, 1\nld [hl+], a\nld a, 2\nld [hl-], a\nld b, [hl]\nld a, [hl+]",
        {"b": 1, "a": 1, "hl": 0xC001},
    ),
    "through bc and de": (
        "ld bc, $C003\nld de, $C004\nld a, 9\nld [bc], a\ninc a\nld [de], a\nld a, [bc]\nld l, a",
        {"l": 9, "a": 9},
    ),
    "at addresses": ("ld a, 5\nld [$C001], a\nxor a\nld a, [$C001]", {"a": 5}),
    "high page": ("ld a, 6\nldh [$FF90], a\nxor a\nldh a, [$90]\nld b, a", {"b": 6}),
    "high page by c": ("ld c, $91\nld a, 8\nldh [c], a\nxor a\nldh a, [c]\nld d, a", {"d": 8}),
    "add": ("ld a, $FF\nadd a, 1", {"a": 0, "f": Z | H | C}),
    "adc": ("scf\nld a, $0F\nadc a, 0", {"a": 0x10, "f": H}),
    "sub": ("ld a, $10\nsub 1", {"a": 0x0F, "f": N | H}),
    "sbc": ("scf\nld a, 0\nld b, 0\nsbc a, b", {"a": 0xFF, "f": N | H | C}),
    "and": ("ld a, $F0\nand $3C", {"a": 0x30, "f": H}),
    "xor": ("ld a, $F0\nld e, $FF\nxor e", {"a": 0x0F, "f": 0}),
    "or": ("ld a, $F0\nld hl, $C000\nld [hl], 3\nor [hl]", {"a": 0xF3, "f": 0}),
    "cp": ("ld a, 7\ncp 7\nld b, a", {"a": 7, "f": Z | N}),
    "cp less": ("ld a, 7\ncp 8", {"a": 7, "f": N | H | C}),
    "inc and dec": ("ld b, $FF\ninc b\nld c, 1\ndec c\ndec c", {"b": 0, "c": 0xFF, "f": N | H}),
    "words": ("ld bc, $00FF\ninc bc\nld de, 0\ndec de", {"b": 1, "c": 0, "d": 0xFF, "e": 0xFF}),
    "add words": ("ld hl, $8FFF\nld bc, $7001\nor 1\nadd hl, bc", {"hl": 0, "f": H | C}),
    "decimal": ("ld a, $15\nadd a, $27\ndaa", {"a": 0x42}),
    "complement": ("ld a, $0F\ncpl\nscf\nccf", {"a": 0xF0}),
    "rotate a": ("ld a, $81\nrlca\nld b, a\nld a, $81\nrrca", {"b": 0x03, "a": 0xC0, "f": C}),
    "rotate through carry": ("scf\nld a, $80\nrla\nld b, a\nrra", {"b": 1, "a": 0x80, "f": C}),
    "rlc rrc": ("ld b, $81\nrlc b\nld c, 1\nrrc c", {"b": 3, "c": 0x80, "f": C}),
    "rl rr": ("ld b, $80\nrl b\nld c, 2\nrr c", {"b": 0, "c": 0x81, "f": 0}),
    "shifts": (
        "ld b, $C1\nsla b\nld c, $81\nsra c\nld d, $81\nsrl d",
        {"b": 0x82, "c": 0xC0, "d": 0x40, "f": C},
    ),
    "swap": ("ld a, $A5\nswap a", {"a": 0x5A, "f": 0}),
    "bits": ("set 3, b\nld c, $FF\nres 7, c\nbit 3, b", {"b": 8, "c": 0x7F, "f": H}),
    "bit is clear": ("ld hl, $C000\nld [hl], $FE\nbit 0, [hl]", {"f": Z | H}),
    "jumps": ("jp Over\nld b, 1\nOver: jr After\nld c, 1\nAfter: inc d", {"b": 0, "c": 0, "d": 1}),
    "conditions": (
        (
            "and a\njr z, IsZero\nld b, 1\nIsZero: jr nz, Not\nld c, 1\nNot: scf\njp nc, Wrong\n"
            "jp c, Right\nWrong: ld d, 1\nRight: inc e"
        ),
        {"b": 0, "c": 1, "d": 0, "e": 1},
    ),
    "jump to hl": ("ld hl, There\njp hl\nld b, 1\nThere: inc c", {"b": 0, "c": 1}),
    "calls": (
        (
            "call Twice\ncall nz, Never\ncall z, Twice\njr Done\n"
            "Twice: inc b\ninc b\nxor a\nret z\ninc c\nNever: inc d\nret"
        ),
        {"b": 4, "c": 0, "d": 0, "sp": 0xDFF0},
    ),
    "vectors": ("rst $18\njp Done\nSECTION ROM, $0018\nld b, 7\nret\nSECTION ROM, $0300", {"b": 7}),
    "stack": ("ld bc, $1234\npush bc\npop de\nld h, d", {"d": 0x12, "e": 0x34, "sp": 0xDFF0}),
    "flags on the stack": ("ld bc, $12FF\npush bc\npop af", {"a": 0x12, "f": 0xF0}),
    "stack pointer": (
        "ld hl, sp-16\nld b, h\nld c, l\nadd sp, -8\nld hl, sp+0\nld [$C000], sp\nld sp, hl",
        {"b": 0xDF, "c": 0xE0, "hl": 0xDFE8, "sp": 0xDFE8},
    ),
    "interrupts": (
        (
            "xor a\nldh [$FF0F], a\nld a, 1\nldh [$FFFF], a\nei\nhalt\nnop\ndi\njp Done\n"
            "SECTION ROM, $0040\ninc b\nreti\nSECTION ROM, $0300"
        ),
        {"b": 1},
    ),
    "a loop": (
        (
            "ld a, 12\nld b, 13\ncall Multiply\njp Done\nMultiply: ld c, a\nxor a\n"
            ".again: add a, c\ndec b\njr nz, .again\nret"
        ),
        {"a": 156},
    ),
    "data": (
        "ld hl, Table + 2\nld a, [hl+]\nld b, a\nld c, [hl]\njp Done\nTable: DB 1, 2\nDW $0A0B",
        {"b": 0x0B, "c": 0x0A},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_leaves_these_registers(name: str) -> None:
    code, expected = PROGRAMS[name]
    registers = run(code).registers
    wide = {"h": registers["hl"] >> 8, "l": registers["hl"] & 0xFF}
    assert {key: (registers | wide)[key] for key in expected} == expected


def test_memory_is_written_where_it_should_be() -> None:
    code = "ld hl, $C000\nld a, 17\nld [hl+], a\nld [hl], 18\nld [$C004], sp"
    memory = run(code).memory
    assert [memory[at] for at in range(0xC000, 0xC006)] == [17, 18, 0, 0, 0xF0, 0xDF]
