"""Do the tables of the documentation name what is there, and all of it?"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import shoal
import shoal.envs
from shoal.vector.make import BACKENDS

ROOT = Path(__file__).parents[2]
COMING_FROM = (ROOT / "docs" / "coming-from.md").read_text()
COMMANDS = re.findall(r"`((?:python|pytest|make) [^`]+)`", COMING_FROM)
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_what_shows_an_item_exists(command: str) -> None:
    program, *words = command.split()
    if program == "make":
        assert words[0] in TARGETS
    elif words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None
    else:
        assert (ROOT / words[0]).exists()


def test_a_test_that_shows_an_item_is_in_its_file() -> None:
    chosen = re.findall(r"`pytest (\S+) -k (\w+)`", COMING_FROM)
    assert chosen
    for file, name in chosen:
        assert re.search(rf"^def test_\w*{name}", (ROOT / file).read_text(), re.M), name


def test_every_public_name_is_on_the_page_about_the_api() -> None:
    shown = set(re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.M))
    errors = {name for name in shoal.__all__ if name.endswith("Error") or name.startswith("Worker")}
    errors |= {"EnvRaised"}  # all of these are shown by their module
    names = {f"shoal.{name}" for name in shoal.__all__ if name not in errors}
    names |= {f"shoal.envs.{name}" for name in shoal.envs.__all__}
    assert names - shown == set()


def test_every_backend_is_on_the_page_about_platforms() -> None:
    rows = (ROOT / "docs" / "platforms.md").read_text().splitlines()
    (tested,) = [row for row in rows if row.startswith("| Linux, x86-64")]
    backends = {word.strip() for word in tested.split("|")[3].split(",")}
    assert backends == set(BACKENDS) - {"auto"}
