"""`shoal train ALGORITHM`: from a configuration to a finished run."""

from __future__ import annotations

import argparse
import signal
import sys

from shoal.extras import needs

SUMMARY = "train an agent, and leave a folder with its checkpoints, curves and a video"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algorithm", help="what to train with: ppo")
    parser.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="...",
        help="see `shoal train ALGORITHM --help`",
    )


def run(given: argparse.Namespace) -> int:
    try:
        return _train(given.algorithm, given.arguments)
    except KeyboardInterrupt:
        print("shoal train: stopped at once. What was saved before is whole.", file=sys.stderr)
        return 128 + signal.SIGINT


def _train(algorithm: str, arguments: list[str]) -> int:
    with needs("torch"):
        from shoal.training.api import train
        from shoal.training.request import base_of, kind_of
        from shoal.training.settings import parse, peek

    base = base_of(algorithm, peek(kind_of(algorithm), "resume_from", arguments))
    prog = f"shoal train {algorithm}"
    config = parse(type(base), arguments, prog, base.__doc__ or "", base)
    summary = train(config, shows=True).summary
    if summary["stopped_by"] in ("SIGINT", "SIGTERM"):
        return 128 + signal.Signals[summary["stopped_by"]]  # what the shell is used to
    return 0 if summary["is_saved"] else 1
