"""`shoal doctor`: whether this installation is in order, and what to do where it is not."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from shoal import __version__
from shoal.testing import doctor, trials
from shoal.testing.doctor import Sign

SUMMARY = "look at this machine, run every backend on it, and say whether all is well"
PASSED = "ALL TESTS PASSED!"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are none."""


def run(given: argparse.Namespace) -> int:
    print(f"shoal {__version__}")
    signs = _show("machine", doctor.examine())
    signs += _show("packages", doctor.packages())
    what = f"{trials.NUM_ENVS} environments, {trials.NUM_STEPS} steps, compared bit for bit"
    signs += _show(f"backends ({what})", trials.try_backends())
    signs += _show("several agents (the same)", trials.try_agents())
    return _conclude(signs)


def _show(title: str, signs: Iterable[Sign]) -> list[Sign]:
    print(f"\n{title}")
    shown = []
    for sign in signs:
        print(f"  {sign.name:<21} {sign.value}", flush=True)
        if sign.advice:
            print(f"  {'':<21} -> {sign.advice}", flush=True)
        shown.append(sign)
    return shown


def _conclude(signs: list[Sign]) -> int:
    failed = [sign for sign in signs if sign.is_fatal]
    if failed:
        print(f"\n{len(failed)} FAILED: {', '.join(sign.name for sign in failed)}. What to do:")
        for sign in failed:
            print(f"  {sign.name}: {sign.advice}")
        return 1
    hints = sum(bool(sign.advice) for sign in signs)
    if hints:
        print(f"\n{hints} thing{'s' if hints > 1 else ''} to know: see the arrows above.")
    print(f"\n{PASSED}" if not hints else PASSED)
    return 0
