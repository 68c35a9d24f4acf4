"""``check_env``: steps one environment as the engine would, and explains what it finds.

The stages run in the order of ``_EnvCheck.run``; one that leaves nothing to go on with ends the
check. Every environment that was reached is closed.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import cloudpickle
import gymnasium
import numpy as np

from shoal.engine.build import of_several
from shoal.testing import leaf
from shoal.testing.probe import Moment, Probe, attempt
from shoal.testing.report import Notebook, Problem, Report, Stop, describe, shorten

Env = gymnasium.Env[Any, Any]
Factory = Callable[[], Env]
Entry = tuple[str, Any, Moment]
"""Where, the action (None for a reset), and what came of it."""


def check_env(env: Env | Factory, *, episodes: int = 3, steps: int = 200, seed: int = 0) -> Report:
    """Step an environment until ``episodes`` ended or ``steps`` were taken; report every breach.

    Nothing that the environment does wrong is raised. It is closed in the end. Give a factory
    where you can: then it is also checked that the factory can travel to a worker, and that a
    second, fresh environment does the same as the first.
    """
    notebook = Notebook(_name(env))
    check = _EnvCheck(notebook, episodes, steps, seed)
    try:
        check.run(env)
    except Stop:
        pass
    finally:
        check.close()
    return notebook.report()


class _EnvCheck:
    """The stages of one check, and what they share."""

    def __init__(self, notebook: Notebook, episodes: int, steps: int, seed: int) -> None:
        self.notebook = notebook
        self.episodes = episodes
        self.steps = steps
        self.seed = seed
        self._to_close: list[Env] = []

    def run(self, subject: Any) -> None:
        factory = None if _is_env(subject) else self._factory(subject)
        env = self._build(factory) if factory else subject
        self._check_kind(env)
        if factory is None:
            self._to_close.append(env)
        self._check_spaces(env)
        self._check_signature(env)
        probe = Probe(env, self.notebook)
        actions = copy.deepcopy(env.action_space)
        actions.seed(self.seed)
        trace = list(self._episodes(probe, actions))
        self._check_reset_in_mid_episode(probe, actions)
        self._check_seeds(probe)
        self._check_render(env)
        self._check_determinism(trace, env, factory)

    def close(self) -> None:
        for env in self._to_close:
            for where in ("first close", "second close"):
                try:
                    attempt(self.notebook, where, "close", env.close)
                except Stop:
                    break

    def _factory(self, subject: Any) -> Factory:
        if not callable(subject):
            then = "Pass an environment, its class, or a function without arguments that makes it."
            self._stop("check_env", "this is no environment", "an environment", subject, then)
        try:
            cloudpickle.dumps(subject)
        except Exception as error:
            then = "Workers in other processes need it: make such objects inside the factory."
            what = f"the factory cannot be pickled{_culprit(subject)}"
            got = describe(error)
            self._add("factory", Problem("error", what, "a picklable factory", got, then))
        return subject  # type: ignore[no-any-return]

    def _build(self, factory: Factory) -> Any:
        env = attempt(self.notebook, "construction", "the factory", factory)
        if hasattr(env, "close") and not any(env is other for other in self._to_close):
            self._to_close.append(env)
        return env

    def _check_kind(self, env: Any) -> None:
        if isinstance(env, gymnasium.vector.VectorEnv):
            then = "Use shoal.testing.check_vector_env."
            self._stop("check_env", "this is a vector environment", "a single one", env, then)
        if isinstance(env, gymnasium.Env):
            return
        if several := of_several(env):
            what, then = f"this is {several[0]} (PettingZoo)", f"Use shoal.{several[1]}."
            self._stop("check_env", what, "a gymnasium.Env", env, then)
        then = "Derive it from gymnasium.Env, or convert it (Shimmy does so for old Gym envs)."
        self._stop("construction", "this is no gymnasium.Env", "a gymnasium.Env", env, then)

    def _check_spaces(self, env: Env) -> None:
        wrong = False
        for name in ("observation_space", "action_space"):
            space = getattr(env, name, None)
            if not isinstance(space, gymnasium.Space):
                wrong = True
                then = f"Set self.{name} in the constructor."
                what = f"{name} is missing or no space"
                got = shorten(space)
                self._add("construction", Problem("error", what, "a gymnasium.Space", got, then))
        if wrong:
            raise Stop

    def _check_signature(self, env: Env) -> None:
        parameters = inspect.signature(env.unwrapped.reset).parameters
        open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
        missing = [name for name in ("seed", "options") if name not in parameters]
        if missing and not open_ended:
            what = f"reset does not take {' and '.join(missing)}"
            then = "Declare def reset(self, *, seed=None, options=None) and begin with super()'s."
            got = f"reset({', '.join(parameters)})"
            self._add("reset", Problem("error", what, "reset(*, seed, options)", got, then))
            raise Stop

    def _episodes(self, probe: Probe, actions: gymnasium.Space[Any]) -> Iterator[Entry]:
        """Run the episodes as the engine would, from a seeded reset on."""
        where = f"first reset, seed {self.seed}"
        yield where, None, probe.reset(where, seed=self.seed)
        self._check_generator(probe.env)
        episode, step = 0, 0
        for _ in range(self.steps):
            step += 1
            where = f"episode {episode}, step {step}"
            action = attempt(self.notebook, where, "action_space.sample", actions.sample)
            moment = probe.step(where, action)
            yield where, action, moment
            if moment.ended:
                episode, step = episode + 1, 0
                if episode == self.episodes:
                    return
                where = f"reset to episode {episode}"
                yield where, None, probe.reset(where)
        if episode == 0:
            what = f"no episode ended within {self.steps} steps"
            then = "Ends were not checked: give more steps, or a shorter time limit."
            self._add(where, Problem("note", what, "an end", "none", then))

    def _check_generator(self, env: Env) -> None:
        got = getattr(env.unwrapped, "_np_random_seed", None)
        if got != self.seed:
            what = "reset does not seed np_random"
            then = "Call super().reset(seed=seed) first and draw everything from self.np_random."
            expected = f"np_random_seed {self.seed}"
            self._add("first reset", Problem("warning", what, expected, str(got), then))

    def _check_reset_in_mid_episode(self, probe: Probe, actions: gymnasium.Space[Any]) -> None:
        probe.reset("reset with empty options", options={})
        probe.step("step before a reset in mid-episode", actions.sample())
        probe.reset("reset in mid-episode")
        probe.reset("reset directly after a reset")
        probe.step("step after a reset in mid-episode", actions.sample())

    def _check_seeds(self, probe: Probe) -> None:
        seeds = [self.seed + i for i in range(4)]
        starts = [probe.reset(f"reset, seed {seed}", seed=seed).observation for seed in seeds]
        if all(leaf.same(starts[0], start) for start in starts[1:]):
            what = "different seeds give the same first observation"
            then = "Right for an environment with one start; otherwise the seed is not used."
            expected, got = "different starts", f"one start for the seeds {seeds}"
            self._add("reset", Problem("note", what, expected, got, then))

    def _check_render(self, env: Env) -> None:
        mode = env.render_mode
        if mode is None:
            return
        modes = (env.metadata or {}).get("render_modes", [])
        if mode not in modes:
            what, then = "render_mode is not declared", "Add it to metadata['render_modes']."
            self._add("metadata", Problem("warning", what, f"one of {modes}", repr(mode), then))
        if mode == "rgb_array":
            frame = attempt(self.notebook, "after a reset", "render", env.render)
            if not _is_picture(frame):
                what, then = "render gives no picture", "Return such an array, or another mode."
                expected, got = "a uint8 array (height, width, 3)", _describe_frame(frame)
                self._add("render", Problem("error", what, expected, got, then))

    def _check_determinism(self, trace: list[Entry], env: Env, factory: Factory | None) -> None:
        second = self._second(env, factory) if factory else env
        probe = Probe(second, self.notebook)
        for i, (where, action, moment) in enumerate(trace):
            where = f"second run, {where}"
            if action is not None:
                again = probe.step(where, action)
            else:
                again = probe.reset(where, **({} if i else {"seed": self.seed}))
            if not leaf.same(moment, again):
                self._add(where, _difference(moment, again))
                return

    def _second(self, env: Env, factory: Factory) -> Env:
        second: Env = self._build(factory)
        if second is env:
            then = "Make a new one in each call: many are stepped at once."
            what = "the factory returns one environment twice"
            self._stop("second construction", what, "a new environment", second, then)
        return second

    def _add(self, where: str, problem: Problem) -> None:
        self.notebook.add(where, problem)

    def _stop(self, where: str, what: str, expected: str, value: Any, then: str) -> NoReturn:
        got = f"{type(value).__name__} {shorten(value)}"
        self._add(where, Problem("error", what, expected, got, then))
        raise Stop


def _name(subject: Any) -> str:
    if hasattr(subject, "__name__"):
        return str(subject.__name__)
    spec = getattr(subject, "spec", None)
    return str(spec.id) if spec else type(getattr(subject, "unwrapped", subject)).__name__


def _is_env(subject: Any) -> bool:
    return hasattr(subject, "reset") and not isinstance(subject, type)


def _culprit(factory: Any) -> str:
    """Which variable of a closure it is, where that can be told."""
    code, cells = getattr(factory, "__code__", None), getattr(factory, "__closure__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or (), strict=False):
        try:
            cloudpickle.dumps(cell.cell_contents)
        except Exception:
            return f" because of its variable {name!r}"
    return ""


def _is_picture(frame: Any) -> bool:
    good = isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.ndim == 3
    return good and frame.shape[2] == 3


def _describe_frame(frame: Any) -> str:
    if isinstance(frame, np.ndarray):
        return f"{frame.dtype} {frame.shape}"
    return f"{type(frame).__name__} {shorten(frame)}"


def _difference(first: Moment, second: Moment) -> Problem:
    what = "the same seed and actions give another trajectory"
    then = (
        "Draw only from self.np_random and keep nothing across a seeded reset; without this, "
        "neither replay nor exact resuming can work."
    )
    name = next(n for n in Moment._fields if not leaf.same(getattr(first, n), getattr(second, n)))
    expected = f"{name} {shorten(getattr(first, name))}"
    return Problem("warning", what, expected, shorten(getattr(second, name)), then)
