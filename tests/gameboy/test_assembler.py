"""Does the assembler write what the processor reads? PyBoy's own table of opcodes is the oracle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shoal.envs.gameboy.assembler import AssemblyError, assemble
from shoal.envs.gameboy.assembler.cartridge import global_checksum, header_checksum
from shoal.envs.gameboy.assembler.instructions import INSTRUCTIONS, Slot
from shoal.envs.gameboy.console import _load_pyboy

NUM_INSTRUCTIONS = 500
UNDEFINED = {0xD3, 0xDB, 0xDD, 0xE3, 0xE4, 0xEB, 0xEC, 0xED, 0xF4, 0xFC, 0xFD}
PREFIX = 0xCB


def rom_of(code: str) -> bytes:
    return assemble(f"SECTION ROM, $0200\n{code}", "TEST").rom


def bytes_of(code: str, count: int = 8) -> list[int]:
    return list(rom_of(code)[0x0200 : 0x0200 + count])


def test_there_are_500_instructions_and_no_two_are_the_same() -> None:
    values = {Slot.BIT: range(8), Slot.VECTOR: range(0, 64, 8), Slot.RELATIVE: [2]}
    opcodes = [
        form.encode(value, 0)[: len(form.opcode)]
        for form in INSTRUCTIONS.values()
        for value in values.get(form.slot, [0])
    ]
    assert len(opcodes) == len(set(opcodes)) == NUM_INSTRUCTIONS
    single = {code[0] for code in opcodes if len(code) == 1}
    assert single == set(range(256)) - UNDEFINED - {PREFIX}
    assert {code[1] for code in opcodes if len(code) == 2} == set(range(256))


def test_every_instruction_has_the_opcode_that_pyboy_gives_its_name() -> None:
    _load_pyboy()
    from pyboy.core.opcodes import CPU_COMMANDS

    checked = 0
    for number, name in enumerate(CPU_COMMANDS):
        if number == PREFIX or number in UNDEFINED:
            continue
        expected = [number] if number < 256 else [PREFIX, number - 256]
        assert bytes_of(_as_we_write(name), len(expected)) == expected, name
        checked += 1
    assert checked == NUM_INSTRUCTIONS


def _as_we_write(name: str) -> str:
    """`LD (a16),SP` is `ld [$1234], sp` here."""
    odd = {"JP (HL)": "jp hl", "STOP 0": "stop", "LD (C),A": "ldh [c], a", "LD A,(C)": "ldh a, [c]"}
    if name in odd:
        return odd[name]
    text = name.lower().replace("(", "[").replace(")", "]").replace("jr ", "jr ")
    text = re.sub(r"rst (\w\w)h", r"rst $\1", text)
    relative = text.startswith("jr")
    for what, number in {"d16": "$1234", "a16": "$1234", "d8": "$56", "a8": "$78"}.items():
        text = text.replace(what, number)
    return text.replace("r8", "$0210" if relative else "5")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ld bc, $1234", [0x01, 0x34, 0x12]),
        ("ld a, -1", [0x3E, 0xFF]),
        ("ldh [$FF80], a", [0xE0, 0x80]),
        ("ldh a, [$44]", [0xF0, 0x44]),
        ("ld hl, sp-2", [0xF8, 0xFE]),
        ("ld hl, sp + 3", [0xF8, 0x03]),
        ("add sp, -8", [0xE8, 0xF8]),
        ("jr @", [0x18, 0xFE]),
        ("nop\njr @ - 1", [0x00, 0x18, 0xFD]),
        ("stop\nnop", [0x10, 0x00, 0x00]),
        ("bit 7, [hl]", [0xCB, 0x7E]),
        ("res 0, b\nset 3, a", [0xCB, 0x80, 0xCB, 0xDF]),
        ("rst $28", [0xEF]),
        ("and b\nand a, b", [0xA0, 0xA0]),
        ("LD A, [HLI]\nld [hld], a", [0x2A, 0x32]),
        ("ldh [$FF00 + c], a", [0xE2]),
        ("jp nc, $4000", [0xD2, 0x00, 0x40]),
        ("DW $1234, -2", [0x34, 0x12, 0xFE, 0xFF]),
        ("DB 1, \"AB\", 'C', $FF", [1, 65, 66, 67, 255]),
        ('CHARMAP "A", 7\nDB "AB", \'A\'', [7, 66, 7]),
        ("DS 2\nDS 2, 9\nDB 1", [0, 0, 9, 9, 1]),
        ('PX "..--++##"', [0b00110011, 0b00001111]),
        ("X EQU 3 + 4 * 2\nDB X, (3 + 4) * 2, X - 1, -X & $FF", [11, 14, 10, 245]),
        ("DB 1 << 3 | 1, %1010 ^ %0110, 17 % 5, 17 / 5, ~0 & $F", [9, 12, 2, 3, 15]),
        ("DB HIGH($1234), LOW($1234)", [0x12, 0x34]),
        ("DB ';', \",\" ; a comment, with a comma\nDB 2", [59, 44, 2]),
    ],
)
def test_what_is_written_becomes_these_bytes(code: str, expected: list[int]) -> None:
    assert bytes_of(code, len(expected)) == expected


def test_names_may_be_used_above_their_definition() -> None:
    assert bytes_of("jp There\nDB SIZE\nThere: nop\nSIZE EQU There - @ + 5", 4) == [
        0xC3,
        0x04,
        0x02,
        0x04,
    ]


def test_local_labels_belong_to_the_label_above() -> None:
    code = "One: nop\n.again: jr .again\nTwo: nop\n.again: jr .again\ndw One.again, Two.again"
    assembly = assemble(f"SECTION ROM, $0200\n{code}", "TEST")
    assert assembly.symbols["One.again"] == 0x0201
    assert assembly.symbols["Two.again"] == 0x0204
    assert list(assembly.rom[0x0206:0x020A]) == [0x01, 0x02, 0x04, 0x02]


def test_a_picture_is_two_columns_of_tiles() -> None:
    rows = [f'ART "{"#" * at}{"." * (16 - at)}"' for at in range(16)]
    rom = rom_of("\n".join(rows) + "\nDB 7")
    left, right = rom[0x0200:0x0220], rom[0x0220:0x0240]
    for at in range(16):
        mask = (0xFFFF << 16 - at) & 0xFFFF
        assert list(left[2 * at : 2 * at + 2]) == [mask >> 8] * 2
        assert list(right[2 * at : 2 * at + 2]) == [mask & 0xFF] * 2
    assert rom[0x0240] == 7


def test_variables_lie_in_ram_and_keep_their_notes() -> None:
    source = "SECTION RAM, $C000\nOne: DS 1 ;; first\nTwo: DS 3 ;; second\nThree: DS 2 ; no note"
    assembly = assemble(source, "TEST")
    assert assembly.symbols == {"One": 0xC000, "Two": 0xC001, "Three": 0xC004}
    assert [
        (name, one.address, one.num_bytes, one.note) for name, one in assembly.variables.items()
    ] == [("One", 0xC000, 1, "first"), ("Two", 0xC001, 3, "second")]


def test_the_header_is_that_of_a_plain_cartridge() -> None:
    rom = rom_of("DB $FF, $FF")
    assert len(rom) == 0x8000
    assert rom[0x0134:0x0138] == b"TEST"
    assert rom[0x0147:0x014A] == bytes(3)  # ROM only, 32 KiB, no RAM
    checksum = 0
    for byte in rom[0x0134:0x014D]:
        checksum = (checksum - byte - 1) % 256
    assert rom[0x014D] == header_checksum(rom) == checksum
    total = sum(rom) - rom[0x014E] - rom[0x014F]
    assert rom[0x014E] << 8 | rom[0x014F] == global_checksum(rom) == total % 65536
    assert not any(rom[0x0104:0x0134]), "the logo is not ours"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("ld a, wThere", "source:2: wThere has no value here"),
        ("Here: nop\njp Hree", "source:3: Hree has no value here. Did you mean 'Here'?"),
        ("lda 3", "source:2: there is no 'lda'. Did you mean 'ld"),
        ("ld b, [de]", "source:2: ld cannot take b, [de]; expected"),
        ("inc", "source:2: inc cannot take no operand; expected b | c | d"),
        ("ld a, 256", "source:2: 256 is 256; expected a number from -128 to 255."),
        ("jr $0300", "source:2: $0300 is 768; expected an address at most 128 bytes before"),
        ("bit 8, a", "source:2: 8 is 8; expected a bit from 0 to 7."),
        ("rst 3", "source:2: 3 is 3; expected one of $00, $08"),
        ("ldh a, [$C000]", "expected an address from $FF00 to $FFFF"),
        ("A: nop\nA: nop", "source:3: A is defined twice."),
        (".a: nop", "source:2: .a is local, but there is no label above it."),
        ("DB 256", "source:2: 256 does not fit; expected a number from -128 to 255."),
        ("DB 1,,2", "source:2: expected an operand between two commas."),
        ('DB "abc', "source:2: a string has no closing quotation mark."),
        ("DB (1 + 2", "source:2: a bracket is not closed in '(1 + 2'."),
        ("DB 1 + ", "source:2: expected a number or a name, got 'nothing'"),
        ("DB 1 2", "source:2: expected an operator, got '2' in '1 2'."),
        ("DB 1 / 0", "source:2: '1 / 0' has no value"),
        ("DS Later\nLater EQU 3", "source:2: Later has no value here."),
        ('PX "..."', "source:2: expected 8 of .-+#, got '...'."),
        ('ART "................"\nnop', "source:3: expected ART: a picture has 16 rows."),
        ("SECTION ROM, $C000", "source:2: ROM is from $0000 to $7FFF, got $C000."),
        ("SECTION CAVE, 0", "source:2: expected SECTION ROM, address or SECTION RAM, address."),
        ("SECTION RAM, $C000\nDB 1", "source:3: RAM holds only DS"),
        ("SECTION ROM, $7FFF\nDW 1", "source:3: ROM ends at $7FFF; this would reach $8000."),
        ("nop\nSECTION ROM, $0200\nnop", "source:4: $0200 is taken already by source:2."),
        ("SECTION ROM, $0104\nnop", "source:3: $0104 belongs to the header"),
        ('CHARMAP "ab", 1', "source:2: expected one character, got 'ab'."),
    ],
)
def test_what_is_wrong_is_told_with_its_line(code: str, message: str) -> None:
    with pytest.raises(AssemblyError, match=re.escape(message)):
        rom_of(code)


def test_nothing_can_stand_before_the_first_section() -> None:
    with pytest.raises(AssemblyError, match="source:1: expected SECTION"):
        assemble("nop", "TEST")


def test_a_title_has_to_fit() -> None:
    with pytest.raises(ValueError, match="at most 15 capital letters"):
        assemble("SECTION ROM, $0200\nnop", "A title that is too long")


def test_included_files_are_looked_for_beside_the_one_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "main.asm").write_text('SECTION ROM, $0200\nINCLUDE "part.asm"\nDB SIZE\n')
    (tmp_path / "part.asm").write_text("SIZE EQU 5\nDB 1\n")
    assert list(assemble(tmp_path / "main.asm", "TEST").rom[0x0200:0x0202]) == [1, 5]
    (tmp_path / "part.asm").write_text("DB 1\nwrong\n")
    with pytest.raises(AssemblyError, match=r"part\.asm:2: there is no 'wrong'"):
        assemble(tmp_path / "main.asm", "TEST")
    (tmp_path / "part.asm").write_text('INCLUDE "main.asm"\n')
    with pytest.raises(AssemblyError, match="includes itself"):
        assemble(tmp_path / "main.asm", "TEST")
    (tmp_path / "part.asm").unlink()
    with pytest.raises(AssemblyError, match="cannot be read"):
        assemble(tmp_path / "main.asm", "TEST")
