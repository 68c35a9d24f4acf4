"""The header of a cartridge: what stands from $0104 to $014F of every ROM.

The logo area stays empty. The picture that Game Boys compare it with is a trademark, PyBoy's boot
ROM does not ask for it, and so neither a real console nor an emulator with the original boot ROM
starts such a cartridge.
"""

from __future__ import annotations

ROM_BYTES = 0x8000
TITLE, TITLE_BYTES = 0x0134, 15
CARTRIDGE_TYPE, ROM_SIZE, RAM_SIZE = 0x0147, 0x0148, 0x0149
HEADER_CHECKSUM, GLOBAL_CHECKSUM = 0x014D, 0x014E
HEADER = range(0x0104, 0x0150)


def write_header(rom: bytearray, title: str) -> None:
    """A cartridge of 32 KiB with nothing but ROM, for the first Game Boy, and its checksums."""
    name = title.encode("ascii")
    if len(name) > TITLE_BYTES or title != title.upper():
        raise ValueError(f"title is {title!r}; expected at most {TITLE_BYTES} capital letters")
    rom[HEADER.start : HEADER.stop] = bytes(len(HEADER))
    rom[TITLE : TITLE + len(name)] = name
    rom[CARTRIDGE_TYPE] = rom[ROM_SIZE] = rom[RAM_SIZE] = 0
    rom[HEADER_CHECKSUM] = header_checksum(rom)
    total = global_checksum(rom)
    rom[GLOBAL_CHECKSUM : GLOBAL_CHECKSUM + 2] = total.to_bytes(2, "big")


def header_checksum(rom: bytes | bytearray) -> int:
    """Of the bytes from the title up to the version, as boot ROMs compute it."""
    return -sum(byte + 1 for byte in rom[TITLE:HEADER_CHECKSUM]) & 0xFF


def global_checksum(rom: bytes | bytearray) -> int:
    """Of all bytes but its own two."""
    return sum(rom[:GLOBAL_CHECKSUM]) + sum(rom[GLOBAL_CHECKSUM + 2 :]) & 0xFFFF
