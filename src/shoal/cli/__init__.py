"""The command `shoal`: parse, build, call; no logic. Each command lives in a file of its name."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from shoal import __version__
from shoal.cli import advise, bench, check, doctor, eval, replay, train
from shoal.engine.machine import is_trusted
from shoal.errors import ShoalError


class Command(Protocol):
    """What a module of a command offers."""

    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, given: argparse.Namespace) -> int: ...


COMMANDS: dict[str, Command] = {
    "advise": advise,
    "bench": bench,
    "check": check,
    "doctor": doctor,
    "eval": eval,
    "replay": replay,
    "train": train,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 if all is well, 1 if not, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="shoal", description="Many reinforcement-learning environments at once."
    )
    parser.add_argument("--version", action="version", version=f"shoal {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        command.add_arguments(commands.add_parser(name, help=command.SUMMARY))
    given = parser.parse_args(arguments)
    _look_here()
    try:
        return COMMANDS[given.command].run(given)
    except ShoalError as problem:
        print(f"shoal {given.command}: {problem}", file=sys.stderr)
        return 2


def _look_here() -> None:
    """Find the user's modules in the working folder, after all others."""
    here = os.getcwd()
    if is_trusted(here):
        sys.path.append(here)
    else:
        print(f"shoal: modules in {here} are not used: all users may write there", file=sys.stderr)
