"""`shoal replay FILE`: reproduce, in this process, what a capsule was written of."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from shoal.engine import capsule as capsules
from shoal.engine.capsule import Capsule
from shoal.engine.commands import PHASES
from shoal.engine.reproduce import Outcome, reproduce
from shoal.errors import ConfigError
from shoal.vector.source import assemble

SUMMARY = "reproduce in one process what went wrong in a worker, from the capsule it left"
INTERRUPTED = 130
"""What a shell expects of a program that Ctrl-C has ended."""

_STDERR = 2
"""The descriptor, whatever `sys.stderr` may be at the moment."""

_BEFORE = {
    "died": "It ended its worker, and may end this process now; then the stack below shows where.",
    "hung": "It hung. Where it hangs again Ctrl-C shows where, or Ctrl-\\ if that does not help.",
}
_HINTS = {
    "died": "Was the worker killed from outside, for its memory perhaps? Or does the environment "
    "depend on more than its seed and its actions?",
    "hung": "Was it just slow, beyond step_timeout_s? Or does the environment depend on more than "
    "its seed and its actions?",
    "raised": "Does the environment depend on more than its seed and its actions: on time, files, "
    "other processes, earlier episodes?",
}

_NAMES = {phase: phase for phase in PHASES} | {"construct": "construction"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a capsule, as in stats()['incidents']")
    parser.add_argument("--pdb", action="store_true", help="open the debugger where it fails")
    parser.add_argument("--render", action="store_true", help="show the environment on the way")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="also show all that is recorded, and progress"
    )


def run(given: argparse.Namespace) -> int:
    about = capsules.describe(given.file)
    _introduce(about, given.verbose)
    capsule = capsules.read(given.file)
    if given.render:
        capsule = replace(capsule, factory=_shown(capsule.factory))
    _prepare(capsule)
    outcome = reproduce(capsule, on_step=_Progress(given, about["length"]))
    code = _report(capsule, outcome)
    if given.pdb and outcome.error is not None:
        _debug(outcome.error)
    with contextlib.suppress(Exception):  # it has failed already
        outcome.env.close()
    return code


# --- before ------------------------------------------------------------------------------------


def _say(text: str) -> None:
    print(text, flush=True)  # what comes next may end this process


def _introduce(about: dict[str, Any], verbose: bool) -> None:
    _say(about["cause"] if verbose else about["cause"].partition("\n")[0])
    _say(f"  env {about['env_id']} of worker {about['worker']} {about['kind']} in {about['phase']}")
    _say(f"  {_running(about)}, last seed {about['seed']}")
    _say(f"  {about['time']}, in {about['folder']}")
    if verbose:
        _say(f"  made by {about['factory']}\n  action {about['action']}, reset {about['reset']}")
        _say(about["trace"].rstrip())
    here = capsules.versions()
    for name, version in about["versions"].items():
        if here.get(name) != version:
            _say(f"warning: written with {name} {version}, replayed with {here.get(name)}")


def _running(about: dict[str, Any]) -> str:
    if not about["num_episodes"]:
        return "before its first episode"
    length = about["length"]
    what = "whose record is not complete" if length is None else _steps(length)
    return f"in episode {about['num_episodes']}, {what}"


def _steps(length: int) -> str:
    return f"after {length} step{'' if length == 1 else 's'}"


def _prepare(capsule: Capsule) -> None:
    """Let whatever ends this process say where it was."""
    if not faulthandler.is_enabled():
        faulthandler.enable(_STDERR)
    if capsule.kind == "hung" and hasattr(signal, "SIGQUIT"):
        faulthandler.register(signal.SIGQUIT, _STDERR, chain=True)
    if capsule.kind in _BEFORE:
        _say(_BEFORE[capsule.kind])


def _shown(factory: Any) -> Callable[[], Any]:
    """A factory of environments that show themselves in a window."""
    if not isinstance(factory, partial) or factory.func is not assemble:
        raise ConfigError(_CANNOT_SHOW.format("its factory takes no render_mode"))
    maker, kwargs, wrappers = factory.args
    return partial(_build_shown, maker, {**kwargs, "render_mode": "human"}, wrappers)


def _build_shown(maker: Any, kwargs: dict[str, Any], wrappers: Sequence[Any]) -> Any:
    try:
        env = assemble(maker, kwargs, wrappers)
    except TypeError as problem:
        if "render_mode" not in str(problem) and "takes no" not in str(problem):
            raise
        raise ConfigError(_CANNOT_SHOW.format(f"{problem}")) from problem
    modes = (getattr(env, "metadata", None) or {}).get("render_modes") or []
    if "human" not in modes:
        env.close()
        why = f"it has no render mode 'human', only {', '.join(map(repr, modes)) or 'none'}"
        raise ConfigError(_CANNOT_SHOW.format(why))
    return env


_CANNOT_SHOW = "the environment cannot be shown: {}. Replay it without --render."


class _Progress:
    """Shows the environment where that is asked for, and how far it is where that takes long."""

    def __init__(self, given: argparse.Namespace, length: int | None) -> None:
        self._renders, self._length = given.render, length
        self._every_s = 0.5 if given.verbose else 5.0
        self._last = time.monotonic()

    def __call__(self, env: Any, length: int) -> None:
        if self._renders:
            env.render()
        if time.monotonic() - self._last > self._every_s:
            self._last = time.monotonic()
            _say(f"replayed {length} of {self._length} steps")


# --- after -------------------------------------------------------------------------------------


def _report(capsule: Capsule, outcome: Outcome) -> int:
    """Say what came of it; the exit code."""
    if outcome.error is None:
        _report_nothing(capsule, outcome)
        return 0
    _say("".join(traceback.format_exception(outcome.error)).rstrip())
    raised = f"{type(outcome.error).__name__} in {_where(outcome)}"
    if isinstance(outcome.error, KeyboardInterrupt):
        _say(f"interrupted: {raised}")
        return INTERRUPTED
    if outcome.phase == capsule.phase:
        _say(f"reproduced: {raised}")
    else:
        _say(f"another failure, before the failing {_NAMES[capsule.phase]} was reached: {raised}")
    return 1


def _report_nothing(capsule: Capsule, outcome: Outcome) -> None:
    became = "passed" if outcome.phase == capsule.phase else "was not reached"
    _say(f"the failing {_NAMES[capsule.phase]} {became}: not reproduced")
    if outcome.problem:
        _say(f"The replay went another way than the record: {outcome.problem}.")
    _say(_HINTS[capsule.kind])


def _where(outcome: Outcome) -> str:
    after = "" if outcome.phase == "construct" else f", {_steps(outcome.length)}"
    return f"{_NAMES[outcome.phase]}{after}"


def _debug(error: BaseException) -> None:
    import pdb

    pdb.post_mortem(error.__traceback__)
