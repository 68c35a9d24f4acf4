"""A probe drives one environment and looks at everything it returns.

Whatever leaves nothing to go on with (an exception, a result of the wrong form) is written down
and ends in ``Stop``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import gymnasium
import numpy as np

from shoal.testing import leaf
from shoal.testing.report import Notebook, Problem, Stop, describe, shorten

T = TypeVar("T")


class Moment(NamedTuple):
    """What one reset or step returned: copies, so that they stay as they were."""

    observation: Any
    reward: Any = 0.0
    terminated: Any = False
    truncated: Any = False

    @property
    def ended(self) -> bool:
        return bool(self.terminated) or bool(self.truncated)


class Probe:
    """One environment, its returned values checked against its spaces as they come."""

    def __init__(self, env: gymnasium.Env[Any, Any], notebook: Notebook) -> None:
        self.env = env
        self.notebook = notebook
        self._info_kinds: dict[str, str] = {}
        self._held: tuple[Any, Any] | None = None

    def reset(self, where: str, **arguments: Any) -> Moment:
        result = attempt(self.notebook, where, "reset", lambda: self.env.reset(**arguments))
        observation, info = self._unpack(where, "reset", result, ("observation", "info"))
        self._see(where, observation, info)
        return Moment(leaf.frozen(observation))

    def step(self, where: str, action: Any) -> Moment:
        result = attempt(self.notebook, where, "step", lambda: self.env.step(action))
        names = ("observation", "reward", "terminated", "truncated", "info")
        observation, reward, *flags, info = self._unpack(where, "step", result, names)
        self._see(where, observation, info)
        self._write(where, _reward_problem(reward))
        found = [_flag_problem(name, flag) for name, flag in zip(names[2:4], flags, strict=True)]
        for problem in found:
            self._write(where, problem)
        if any(problem is not None and problem.severity == "error" for problem in found):
            raise Stop  # whether the episode ended cannot be told
        return Moment(leaf.frozen(observation), leaf.frozen(reward), *leaf.frozen(flags))

    def _unpack(self, where: str, method: str, result: Any, names: tuple[str, ...]) -> Any:
        if isinstance(result, tuple) and len(result) == len(names):
            return result
        got = f"{len(result)} values" if isinstance(result, tuple) else shorten(result)
        then = f"Return all {len(names)} from {method}."
        if isinstance(result, tuple) and len(result) == 4 and method == "step":
            then += " Four is the form of Gym before 0.26, with one flag for both kinds of end."
        what = f"{method} does not return {len(names)} values"
        self._write(where, Problem("error", what, f"({', '.join(names)})", got, then))
        raise Stop

    def _see(self, where: str, observation: Any, info: Any) -> None:
        self._check_buffer(where, observation)
        for problem in leaf.problems(self.env.observation_space, observation):
            self._write(where, problem)
        self._check_info(where, info)

    def _check_buffer(self, where: str, observation: Any) -> None:
        if self._held is not None and not leaf.same(*self._held):
            self._write(where, _BUFFER_REUSED)
        self._held = (observation, leaf.frozen(observation))

    def _check_info(self, where: str, info: Any) -> None:
        if not isinstance(info, dict):
            then = "Return {} when there is nothing to say."
            what, got = "info has the wrong type", f"{type(info).__name__} {shorten(info)}"
            self._write(where, Problem("error", what, "a dict", got, then))
            return
        for key, value in info.items():
            self._write(where, _key_problem(key))
            kind = info_kind(value)
            before = self._info_kinds.setdefault(str(key), kind)
            if before != kind:
                self._write(where, _kind_problem(key, before, kind))

    def _write(self, where: str, problem: Problem | None) -> None:
        if problem is not None:
            self.notebook.add(where, problem)


_MEND = "Mend it there: in a vector environment it would end the run, or cost an episode."


def attempt(
    notebook: Notebook, where: str, doing: str, call: Callable[[], T], then: str = _MEND
) -> T:
    """``call()``, or a finding and ``Stop`` when it raises."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        what = f"{doing} raised {type(error).__name__}"
        notebook.add(where, Problem("error", what, "no exception", describe(error), then))
        raise Stop from error


_BUFFER_REUSED = Problem(
    "note",
    "the environment overwrites the observation it returned before",
    "a new array at every step",
    "the same memory with new values",
    "Shoal copies in time, last observations included; code that keeps observations does not.",
)

_RESERVED = ("final_obs", "final_info")


def _reward_problem(reward: Any) -> Problem | None:
    expected, then = "a finite real number", "Return float(reward)."
    array = (
        np.asarray(reward) if isinstance(reward, int | float | np.generic | np.ndarray) else None
    )
    if array is None or array.dtype.kind not in "biuf":
        got = f"{type(reward).__name__} {shorten(reward)}"
        return Problem("error", "reward is not a number", expected, got, then)
    if array.shape != ():
        got = f"an array of shape {array.shape}"
        return Problem("error", "reward is not one number", expected, got, then)
    if not np.isfinite(array):
        then = "Mend the reward: one such value spoils every return that contains it."
        return Problem("error", "reward is not finite", expected, shorten(reward), then)
    return None


def _flag_problem(name: str, flag: Any) -> Problem | None:
    if isinstance(flag, bool | np.bool_):
        return None
    got, then = f"{type(flag).__name__} {shorten(flag)}", f"Return bool({name})."
    works = isinstance(flag, int | np.integer) or (
        isinstance(flag, np.ndarray) and flag.shape == () and flag.dtype.kind in "biu"
    )
    return Problem("warning" if works else "error", f"{name} is not a bool", "a bool", got, then)


def _key_problem(key: Any) -> Problem | None:
    if not isinstance(key, str):
        then = "Use a string: batches of infos are dictionaries by name."
        got = f"{type(key).__name__} {shorten(key)}"
        return Problem("error", "info has a key that is not a str", "str keys", got, then)
    if key in _RESERVED or key.startswith("_"):
        what = f"info has the key {key!r}, which batches of infos give a meaning of their own"
        then = "Rename it: vector environments add final_obs, final_info and masks named _key."
        return Problem("warning", what, "another name", repr(key), then)
    return None


def info_kind(value: Any) -> str:
    """What decides how a batch of infos stores this value: two kinds do not fit one column."""
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape}"
    if type(value) in (int, float, bool) or isinstance(value, np.number):
        return type(value).__name__
    return "dict" if isinstance(value, dict) else "object"


def _kind_problem(key: Any, before: str, kind: str) -> Problem:
    then = (
        "Gymnasium gives a batch of infos the type of its first environment, so other types are "
        "truncated or raise: always return one type under this key."
    )
    return Problem("warning", f"info[{key!r}] changes its type", before, kind, then)
