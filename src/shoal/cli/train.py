"""`shoal train ALGORITHM`: from a configuration to a finished run."""

from __future__ import annotations

import argparse
import signal

SUMMARY = "train an agent, and leave a folder with its checkpoints, curves and a video"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algorithm", choices=["ppo"], help="what to train with")
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="see `shoal train ALGORITHM --help`",
    )


def run(given: argparse.Namespace) -> int:
    from shoal.training.api import base_of, train
    from shoal.training.settings import parse

    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--resume-from", "--resume_from")
    base = base_of(given.algorithm, first.parse_known_args(given.arguments)[0].resume_from)
    prog = f"shoal train {given.algorithm}"
    config = parse(type(base), given.arguments, prog, base.__doc__ or "", base)
    stopped_by = train(config, shows=True).summary["stopped_by"]
    if stopped_by in ("SIGINT", "SIGTERM"):
        return 128 + signal.Signals[stopped_by]  # what the shell is used to
    return 0
