"""Builds Tidekeep, the game that comes with Shoal: `python -m shoal.envs.gameboy.build`.

The ROM and its RAM map follow from the sources in `game/` alone, byte for byte. Fields of the map
are the notes (;;) behind variables in `ram.asm`; what is worth something is in `events.yaml`.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from pathlib import Path

from shoal.envs.gameboy.assembler import Assembly, Variable, assemble
from shoal.envs.gameboy.rammap import RamMap
from shoal.errors import ConfigError

LOGGER = logging.getLogger("shoal")
GAME = Path(__file__).parent / "game"
TITLE = "TIDEKEEP"
_NOTE = re.compile(r"(?P<name>\w+):\s*(?P<meaning>.*?)\s*\|\s*(?P<kind>\w+)(?:\s+(?P<size>\d+))?$")


def build(folder: Path = GAME) -> dict[str, bytes]:
    """The files that are made, by name."""
    assembly = assemble(folder / "main.asm", TITLE)
    events = (folder / "events.yaml").read_text(encoding="utf-8")
    ram_map = write_fields(assembly) + _fill_in(events, assembly)
    return {"tidekeep.gb": assembly.rom, "tidekeep.yaml": ram_map.encode()}


def write_fields(assembly: Assembly) -> str:
    """The fields of a RAM map, in YAML."""
    lines = [
        "# Made by `python -m shoal.envs.gameboy.build` from ram.asm and events.yaml.",
        "fields:",
    ]
    lines += [_write_field(label, one) for label, one in assembly.variables.items()]
    return "\n".join(lines) + "\n"


def _write_field(label: str, variable: Variable) -> str:
    note = _NOTE.fullmatch(variable.note)
    if note is None:
        raise ConfigError(
            f"the note of {label} is {variable.note!r}; expected 'name: meaning | scale 9', or "
            "one_hot, bits or hide for scale."
        )
    parts = [f"address: 0x{variable.address:04X}"]
    if note["kind"] != "hide":
        parts.append(f"{note['kind']}: {note['size']}")
    if variable.num_bytes == 2:
        parts.append("bytes: 2")
    elif variable.num_bytes > 2:
        parts.append(f"length: {variable.num_bytes}")
    if note["meaning"]:
        parts.append(f'meaning: "{note["meaning"]}"')
    return f"  {note['name']}: {{{', '.join(parts)}}}"


def write_table(folder: Path = GAME) -> str:
    """The RAM map as documentation shows it, in Markdown."""
    lines = ["| name | address | meaning | observed |", "|---|---|---|---|"]
    for field in RamMap.from_yaml(folder / "tidekeep.yaml").fields:
        begin, end = field.span
        address = f"`${begin:04X}`" + (f" to `${end - 1:04X}`" if end - begin > 1 else "")
        observed = f"`{field.kind} {field.size}`" if field.width else ""
        lines.append(f"| `{field.name}` | {address} | {field.meaning} | {observed} |")
    return "\n".join(lines)


def _fill_in(text: str, assembly: Assembly) -> str:
    """Addresses for `$label`."""
    return re.sub(r"\$(\w+)", lambda found: f"0x{assembly.symbols[found[1]]:04X}", text)


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or with `--check` only say whether they are what they should be."""
    parser = argparse.ArgumentParser(prog="shoal.envs.gameboy.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--table", action="store_true", help="show the RAM map for the docs")
    given = parser.parse_args(arguments)
    check = given.check
    try:
        made = build()
    except ConfigError as problem:
        LOGGER.error("%s", problem)
        return 1
    stale = [name for name, content in made.items() if _content(GAME / name) != content]
    for name in () if check else stale:
        (GAME / name).write_bytes(made[name])
    for name, content in made.items():
        state = ("differs" if check else "written") if name in stale else "as it should be"
        LOGGER.info("%s: %d bytes, %s", name, len(content), state)
    if given.table:
        LOGGER.info("%s", write_table())
    return int(check and bool(stale))


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sys.exit(main())
