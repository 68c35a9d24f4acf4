"""The command `shoal`: parse, build, call; no logic. Each command lives in a file of its name."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Protocol

from shoal import __version__
from shoal.cli import advise, bench, check, doctor, eval, replay, train
from shoal.engine.machine import is_trusted
from shoal.errors import ConfigError, EnvRaised, RemoteTraceback, ShoalError


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
    """Run a command; the exit code is 0 if all is well, 1 if not, 2 for what cannot be."""
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
        print(f"shoal {given.command}: {_told(problem)}", file=sys.stderr)
        return 2 if isinstance(problem, ConfigError) else 1


def _told(problem: ShoalError) -> str:
    """What happened; of an environment's own exception its traceback, too, and what was noted."""
    cause = problem.__cause__ if isinstance(problem, EnvRaised) else None
    return "\n".join([str(problem), *_trace(cause), *getattr(problem, "__notes__", ())])


def _trace(cause: BaseException | None) -> Iterator[str]:
    """The traceback that an exception has, here or in the worker that it came from."""
    if cause is not None:
        remote = cause if isinstance(cause, RemoteTraceback) else cause.__cause__
        is_remote = isinstance(remote, RemoteTraceback)
        text = str(remote) if is_remote else "".join(traceback.format_exception(cause))
        yield text.strip()


def _look_here() -> None:
    """Find the user's modules in the working folder, after all others."""
    here = os.getcwd()
    if is_trusted(here):
        sys.path.append(here)
    else:
        print(f"shoal: modules in {here} are not used: all users may write there", file=sys.stderr)
