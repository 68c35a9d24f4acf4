"""`shoal check ENV`: step an environment as the engine would and explain every contract breach."""

from __future__ import annotations

import argparse
from dataclasses import replace

from shoal.testing import check_env
from shoal.vector.checks import as_count
from shoal.vector.source import resolve

SUMMARY = "step an environment as the engine would and explain every breach of its contract"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("env", metavar="ENV", help="a Gymnasium id, or module:factory")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first reset (default 0)")
    parser.add_argument("--episodes", type=int, default=3, help="episodes to play (default 3)")
    parser.add_argument("--steps", type=int, default=200, help="steps at most (default 200)")


def run(given: argparse.Namespace) -> int:
    for name in ("episodes", "steps"):
        as_count(f"--{name}", getattr(given, name))
    factory = resolve(given.env).factories[0]
    report = check_env(factory, episodes=given.episodes, steps=given.steps, seed=given.seed)
    print(replace(report, subject=given.env))
    return 0 if report.ok else 1
