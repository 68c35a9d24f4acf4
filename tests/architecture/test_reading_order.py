"""Does the reading order of ARCHITECTURE.md lead to every file, and say how long each is?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "shoal"
_ROW = re.compile(r"^\| `([\w/.]+)`( \(others\))? \| (\d+) \|", re.MULTILINE)
ROWS = [
    (name, bool(others), int(count))
    for name, others, count in _ROW.findall((ROOT / "ARCHITECTURE.md").read_text())
]
NAMED = {SOURCE / name for name, others, _ in ROWS if not others}


def files_of(name: str, others: bool) -> list[Path]:
    """The files of a row; of `others`, those in the folder that no other row leads to."""
    path = SOURCE / name
    if path.is_file():
        return [path]
    files = list(path.rglob("*.py"))
    return [file for file in files if not {file, *file.parents} & NAMED] if others else files


@pytest.mark.parametrize(("name", "others", "count"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_tells_how_long_the_reading_is(name: str, others: bool, count: int) -> None:
    lines = sum(len(file.read_text().splitlines()) for file in files_of(name, others))
    # To a tenth: what a reader makes of it stays right, and not every change has to touch it.
    assert abs(lines - count) <= max(3, lines // 10), f"{name} has {lines} lines, not {count}"


def test_every_module_is_on_the_way() -> None:
    led_to = {file for name, others, _ in ROWS for file in files_of(name, others)}
    modules = {file for file in SOURCE.rglob("*.py") if file.stem not in ("__init__", "__main__")}
    assert sorted(str(file.relative_to(SOURCE)) for file in modules - led_to) == []
