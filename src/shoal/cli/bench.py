"""`shoal bench [ENV]`: steps per second of an environment on this machine, and the bound."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from shoal.engine.probe import Probe
from shoal.errors import ConfigError
from shoal.measure import Outcome, Record, claim, contest, report, summarise
from shoal.measure.advise import look_at
from shoal.measure.bench import conclude, describe, describe_footprints, installed_rivals, plan
from shoal.measure.summary import disturbance
from shoal.vector.checks import as_count
from shoal.vector.source import resolve

SUMMARY = "measure an environment on each backend, against the bound and, if you like, rivals"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "env",
        metavar="ENV",
        nargs="?",
        default="CartPole-v1",
        help="a Gymnasium id, or module:factory (default CartPole-v1)",
    )
    parser.add_argument(
        "--n-envs", nargs="+", type=int, default=[2, 8, 32], help="numbers of environments"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="of each measurement (default 0.5)"
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds (default 3)")
    parser.add_argument(
        "--rivals",
        action="store_true",
        help="also Gymnasium's vector environments and other libraries that are installed",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="write figures, a report and a plot there"
    )


def run(given: argparse.Namespace) -> int:
    resolve(given.env)
    _check(given)
    rivals = installed_rivals() if given.rivals else []
    found = look_at(given.env)
    waits = isinstance(found, Probe) and found.waits
    record = Record.begin(["shoal", *_asked(given)])
    for num_envs in given.n_envs:
        jobs = list(plan(given.env, num_envs, rivals, given.seconds, waits))
        outcomes = list(_watched(contest(jobs, given.repeats), len(jobs) * given.repeats))
        record.outcomes += outcomes
        print(describe(summarise(outcomes), jobs[0].place), end="\n\n")
    if given.json:
        given.json.write_text(record.to_json())
    if given.out:
        print(report.write(claim(given.out, record.stem, record.to_json())), end="\n\n")
    rows = summarise(record.outcomes)
    if taken := describe_footprints(rows):
        print(taken, end="\n\n")
    if warning := disturbance(record.outcomes):
        print(warning, file=sys.stderr)
    print(conclude(rows))
    return 0 if any(row.rates for row in rows) else 1


def _asked(given: argparse.Namespace) -> list[str]:
    """The command that measures the same again; where it was put is nobody's business."""
    counts = map(str, given.n_envs)
    numbers = ["--seconds", f"{given.seconds:g}", "--repeats", str(given.repeats)]
    rivals = ["--rivals"] if given.rivals else []
    return ["bench", given.env, "--n-envs", *counts, *numbers, *rivals]


def _check(given: argparse.Namespace) -> None:
    for num_envs in given.n_envs:
        as_count("--n-envs", num_envs)
    as_count("--repeats", given.repeats)
    if not given.seconds > 0:
        raise ConfigError(f"--seconds must be above zero, got {given.seconds:g}.")
    if given.json and not given.json.absolute().parent.is_dir():
        raise ConfigError(f"--json: there is no folder {given.json.absolute().parent}.")
    if given.out and given.out.exists() and not given.out.is_dir():
        raise ConfigError(f"--out: {given.out} is a file, and a folder is needed.")


def _watched(outcomes: Iterator[Outcome], total: int) -> Iterator[Outcome]:
    """Show on a terminal how far it is: a contest takes a while."""
    shows = sys.stderr.isatty()
    for number, outcome in enumerate(outcomes, 1):
        if shows:
            print(
                f"\r{number}/{total} {outcome.job.label:<30}", end="", file=sys.stderr, flush=True
            )
        yield outcome
    if shows:
        print(f"\r{'':<50}\r", end="", file=sys.stderr, flush=True)
