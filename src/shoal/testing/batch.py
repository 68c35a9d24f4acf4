"""What a vector environment has and returns, and the rules these must keep.

Pure functions from values to problems (attributes, forms, masks, episode ends), and the probe
that applies them at every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from shoal.testing import leaf
from shoal.testing.probe import attempt
from shoal.testing.report import Notebook, Problem, Severity, Stop, shorten

AnyVectorEnv = VectorEnv[Any, Any, Any]
Rows = np.ndarray[Any, Any]


class Turnout(NamedTuple):
    """What one reset or step of the whole batch returned; a reset has no rewards and no ends."""

    observations: Any
    rewards: Rows
    terminations: Rows
    truncations: Rows
    infos: dict[str, Any]

    @property
    def ended(self) -> Rows:
        return self.terminations | self.truncations


class VectorProbe:
    """Drives a vector environment and checks all it returns, and that it stays as it was."""

    def __init__(self, envs: AnyVectorEnv, notebook: Notebook, mode: AutoresetMode | None) -> None:
        self.envs = envs
        self.notebook = notebook
        self.mode = mode
        self.final_rows: list[tuple[Any, Any]] = []
        """In same_step mode: each (last observation, first of the next episode) that came."""
        self.sound = True
        """Whether all observations could be taken apart into rows."""
        # A vector environment without copies may overwrite what it returned.
        self._copies = getattr(envs.unwrapped, "copy", True) is not False
        self._held: tuple[Any, Any] | None = None
        self._ended = np.zeros(envs.num_envs, np.bool_)

    def reset(self, where: str, **arguments: Any) -> Turnout:
        result = attempt(self.notebook, where, "reset", lambda: self.envs.reset(**arguments), _MEND)
        self._unpack(where, "reset", result, 2)
        nothing = np.zeros(self.envs.num_envs, np.bool_)
        self._ended = nothing
        return self._see(where, Turnout(result[0], nothing * 0.0, nothing, nothing, result[1]))

    def step(self, where: str, actions: Any) -> Turnout:
        result = attempt(self.notebook, where, "step", lambda: self.envs.step(actions), _MEND)
        self._unpack(where, "step", result, 5)
        turnout = Turnout(*result)
        found = list(array_problems(turnout, self.envs.num_envs))
        self._write(where, found)
        if any(problem.severity == "error" for problem in found):
            raise Stop
        kept = self._see(where, turnout)
        self._check_ends(where, kept)
        self._ended = kept.ended
        return kept

    def _unpack(self, where: str, method: str, result: Any, count: int) -> None:
        if not isinstance(result, tuple) or len(result) != count:
            what, then = f"{method} does not return {count} values", "Return them as one tuple."
            self._write(where, [Problem("error", what, f"{count} values", shorten(result), then)])
            raise Stop

    def _see(self, where: str, turnout: Turnout) -> Turnout:
        """Check what came and what came before; returns a copy."""
        self._check_ownership(where)
        kept: Turnout = leaf.frozen(turnout)
        if self._copies:
            self._held = (turnout, kept)
        space = self.envs.observation_space
        found = list(leaf.problems(space, kept.observations, "obs", exact=True))
        self.sound = self.sound and not any(problem.severity == "error" for problem in found)
        self._write(where, found)
        self._write(where, info_problems(kept.infos, self.envs.num_envs))
        if not isinstance(kept.infos, dict):
            raise Stop
        return kept

    def _check_ownership(self, where: str) -> None:
        if self._held is None:
            return
        now, before = self._held
        for name in Turnout._fields:
            if not leaf.same(getattr(now, name), getattr(before, name)):
                what = f"{name} returned before are overwritten by this call"
                expected, got = "arrays that belong to the caller", "the same memory, new values"
                then = "Copy before returning, or declare copy=False."
                self._write(where, [Problem("error", what, expected, got, then)])

    def _check_ends(self, where: str, turnout: Turnout) -> None:
        if self.mode is AutoresetMode.NEXT_STEP:
            self._write(where, next_step_problems(self._ended, turnout))
        elif self.mode is AutoresetMode.SAME_STEP:
            single = self.envs.single_observation_space
            found = list(same_step_problems(single, turnout))
            self._write(where, found)
            if self.sound and not found:
                self.final_rows += _final_rows(single, turnout)

    def _write(self, where: str, problems: Any) -> None:
        for problem in problems:
            self.notebook.add(where, problem)


_MEND = "Mend it there, or check a single environment with check_env first."


def attribute_problems(envs: Any) -> Iterator[Problem]:
    """What leaves nothing to drive."""
    if not isinstance(envs, VectorEnv):
        got, then = f"{type(envs).__name__} {shorten(envs)}", "Derive its class from VectorEnv."
        what, expected = "this is no vector environment", "a gymnasium.vector.VectorEnv"
        yield Problem("error", what, expected, got, then)
        return
    if envs.closed:
        what, then = "this vector environment is closed", "Make a new one."
        yield Problem("error", what, "closed=False", "closed=True", then)
    then = "Set it in the constructor."
    num_envs = getattr(envs, "num_envs", None)
    if not isinstance(num_envs, int) or num_envs < 1:
        yield Problem("error", "num_envs is wrong", "an int above 0", repr(num_envs), then)
    for name in _SPACES:
        space = getattr(envs, name, None)
        if not isinstance(space, gymnasium.Space):
            what = f"{name} is missing or no space"
            yield Problem("error", what, "a gymnasium.Space", shorten(space), then)


_SPACES = (
    "observation_space",
    "action_space",
    "single_observation_space",
    "single_action_space",
)


def batch_problems(envs: AnyVectorEnv, name: str) -> Iterator[Problem]:
    expected = batch_space(getattr(envs, f"single_{name}"), envs.num_envs)
    got = getattr(envs, name)
    if got == expected:
        return
    what = f"{name} is not the batch of single_{name}"
    then = f"Set it to gymnasium.vector.utils.batch_space(self.single_{name}, self.num_envs)."
    # Environments may differ in their bounds: Gymnasium's observation_mode="different".
    alike = is_space_dtype_shape_equiv(got, expected)
    yield Problem("warning" if alike else "error", what, shorten(expected), shorten(got), then)


def array_problems(turnout: Turnout, num_envs: int) -> Iterator[Problem]:
    """Rewards, terminations and truncations: one number an environment, of the right dtype."""
    for name, dtype in (
        ("rewards", np.float64),
        ("terminations", np.bool_),
        ("truncations", np.bool_),
    ):
        array = getattr(turnout, name)
        expected = f"a {np.dtype(dtype)} array ({num_envs},)"
        if not isinstance(array, np.ndarray):
            got = f"{type(array).__name__} {shorten(array)}"
            yield Problem("error", f"{name} are no array", expected, got, "Return an array.")
        elif array.shape != (num_envs,):
            what, then = f"{name} have the wrong shape", "Return one value an environment."
            yield Problem("error", what, expected, str(array.shape), then)
        elif array.dtype != dtype:
            # Some vector environments compute in float32: not what the class promises, but usable.
            usable = np.issubdtype(dtype, np.floating) and array.dtype.kind == "f"
            what, then = f"{name} have the wrong dtype", f"Return {np.dtype(dtype)}."
            severity: Severity = "warning" if usable else "error"
            yield Problem(severity, what, expected, str(array.dtype), then)


def info_problems(infos: Any, num_envs: int, path: str = "infos") -> Iterator[Problem]:
    """Gymnasium's form: for each key an array of one entry an environment, and a mask ``_key``."""
    if not isinstance(infos, dict):
        got = f"{type(infos).__name__} {shorten(infos)}"
        then = "Return one dictionary of arrays, not one dictionary an environment."
        yield Problem("error", f"{path} are no dict", "a dict", got, then)
        return
    for key, value in infos.items():
        if not isinstance(key, str):
            what, got = f"{path} have a key that is not a str", shorten(key)
            yield Problem("error", what, "str keys", got, "Use strings.")
            continue
        is_mask = key.startswith("_") and key[1:] in infos
        name = f"{path}[{key!r}]"
        if is_mask:
            yield from _mask_problems(name, value, num_envs)
            continue
        if f"_{key}" not in infos:
            what, then = f"{name} has no mask", f"Add _{key}: which environments have the key."
            # Gymnasium's own wrappers leave out the masks inside a dictionary.
            severity: Severity = "error" if path == "infos" else "note"
            yield Problem(severity, what, f"a bool array _{key}", "none", then)
        if isinstance(value, dict):
            yield from info_problems(value, num_envs, name)
        elif not isinstance(value, np.ndarray) or value.shape[:1] != (num_envs,):
            what, then = f"{name} is no batch", "Give one entry an environment."
            yield Problem("error", what, f"an array of {num_envs} entries", shorten(value), then)


def _mask_problems(name: str, mask: Any, num_envs: int) -> Iterator[Problem]:
    good = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (num_envs,)
    if not good:
        expected = f"a bool array ({num_envs},)"
        yield Problem("error", f"{name} is no mask", expected, shorten(mask), "Return a mask.")


def next_step_problems(ended_before: Rows, turnout: Turnout) -> Iterator[Problem]:
    """On the step after an end: the action is ignored, the reward 0, and no flag is set."""
    rows = np.flatnonzero(ended_before)
    for name in ("rewards", "terminations", "truncations"):
        wrong = rows[getattr(turnout, name)[rows] != 0]
        if len(wrong):
            what = f"{name} are not zero on the step that resets"
            got = f"{getattr(turnout, name)[wrong[0]]} in env {wrong[0]}"
            then = "Reset on this step and report reward 0 and no end; the action is ignored."
            yield Problem("error", what, "0 in next_step mode", got, then)


def same_step_problems(single: Space[Any], turnout: Turnout) -> Iterator[Problem]:
    """On the step of an end: ``final_obs`` and ``final_info``, masked for just these rows."""
    ended = turnout.ended
    for key in ("final_obs", "final_info"):
        mask = turnout.infos.get(f"_{key}")
        marked = np.zeros_like(ended) if mask is None else mask
        if not np.array_equal(marked, ended) or (ended.any() and key not in turnout.infos):
            what = f"infos['_{key}'] does not mark the environments that ended"
            then = f"In same_step mode, add {key} and its mask for each end, and only then."
            yield Problem("error", what, shorten(ended), shorten(mask), then)
    finals = turnout.infos.get("final_obs")
    if not ended.any() or finals is None:
        return
    if not isinstance(finals, np.ndarray) or finals.shape != ended.shape:
        what, expected = "infos['final_obs'] is no array of observations", f"{ended.shape} objects"
        then = "Use an object array with one observation an environment, None where none ended."
        yield Problem("error", what, expected, shorten(finals), then)
        return
    for index in np.flatnonzero(ended):
        yield from leaf.problems(single, finals[index], "final_obs")


def _final_rows(single: Space[Any], turnout: Turnout) -> list[tuple[Any, Any]]:
    return [
        (turnout.infos["final_obs"][i], leaf.row(single, turnout.observations, int(i)))
        for i in np.flatnonzero(turnout.ended)
    ]
