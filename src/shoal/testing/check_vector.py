"""``check_vector_env``: whether a vector environment keeps the contract of its class.

It drives the whole batch several times from one seed: once to look at everything returned, once
to see the same again, once with other actions where actions must be ignored. The stages run in
the order of ``_VectorCheck.run``.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from shoal.testing import leaf
from shoal.testing.batch import (
    AnyVectorEnv,
    Rows,
    Turnout,
    VectorProbe,
    attribute_problems,
    batch_problems,
)
from shoal.testing.probe import attempt
from shoal.testing.report import Notebook, Problem, Report, Severity, Stop, describe, shorten

Entry = tuple[str, Turnout]


def check_vector_env(
    envs: AnyVectorEnv, *, steps: int = 200, seed: int = 0, timeout_s: float = 10.0
) -> Report:
    """Drive a vector environment for ``steps`` steps a few times; report every breach.

    Takes Gymnasium's own, Shoal's, wrapped ones and any other. Nothing that it does wrong is
    raised, and it is not closed: afterwards it stands at a fresh ``reset(seed=seed)``, unless an
    error ended the check. ``timeout_s`` bounds the calls that must raise and might hang instead.
    """
    notebook = Notebook(shorten(envs, 60))
    try:
        _check_attributes(envs, notebook)
        _VectorCheck(envs, notebook, steps, seed, timeout_s).run()
    except Stop:
        pass
    return notebook.report()


def _check_attributes(envs: Any, notebook: Notebook) -> None:
    found = list(attribute_problems(envs))
    if not found:
        for name in ("observation_space", "action_space"):
            for problem in batch_problems(envs, name):
                notebook.add("attributes", problem)
        return
    for problem in found:
        notebook.add("attributes", problem)
    raise Stop


class _VectorCheck:
    """The stages of one check, and what they share."""

    def __init__(
        self, envs: AnyVectorEnv, notebook: Notebook, steps: int, seed: int, timeout_s: float
    ) -> None:
        self.envs = envs
        self.notebook = notebook
        self.seed = seed
        self.timeout_s = timeout_s
        self.mode = self._declared_mode()
        space = copy.deepcopy(envs.action_space)
        space.seed(seed)
        self.actions = [space.sample() for _ in range(steps)]
        self.others = [space.sample() for _ in range(steps)]
        """Other actions, for where actions must not matter."""

    def run(self) -> None:
        probe = self._probe()
        trace = list(self._drive(probe, self.actions))
        self._check_ends_were_seen(trace)
        self._check_final_observations(probe, trace)
        # Only what comes out the same twice can be compared with a run that differs somewhere.
        self.reproducible = self._check_reproducible(trace)
        stages = [self._check_render, self._check_action_counts]
        if self.reproducible:
            stages[:0] = [self._check_ignored_actions, self._check_seed_list]
        if self.reproducible and probe.sound:
            stages.insert(0, self._check_partial_reset)
        for stage in stages:
            with contextlib.suppress(Stop):
                stage(trace)

    def _declared_mode(self) -> AutoresetMode | None:
        mode = self.envs.metadata.get("autoreset_mode")
        if isinstance(mode, AutoresetMode):
            return mode
        what = "metadata['autoreset_mode'] is no AutoresetMode"
        then = "Set it to a member of gymnasium.vector.AutoresetMode; wrappers read it."
        self._add("attributes", "error", what, "the enum", repr(mode), then)
        return None

    def _probe(self) -> VectorProbe:
        return VectorProbe(self.envs, self.notebook, self.mode)

    def _drive(self, probe: VectorProbe, actions: list[Any]) -> Iterator[Entry]:
        """Run from the seed on; with autoreset disabled, reset by mask what ended."""
        where = f"reset, seed {self.seed}"
        yield where, probe.reset(where, seed=self.seed)
        for number, action in enumerate(actions, 1):
            where = f"step {number}"
            turnout = probe.step(where, action)
            yield where, turnout
            if self.mode is AutoresetMode.DISABLED and turnout.ended.any():
                where = f"reset by mask after step {number}"
                yield where, probe.reset(where, options={"reset_mask": turnout.ended.copy()})

    def _check_ends_were_seen(self, trace: list[Entry]) -> None:
        if not any(turnout.ended.any() for _, turnout in trace):
            what = f"no episode ended within {len(self.actions)} steps"
            then = "Ends were not checked: give more steps, or a shorter time limit."
            self._add("all steps", "note", what, "an end", "none", then)

    def _check_final_observations(self, probe: VectorProbe, trace: list[Entry]) -> None:
        rows = probe.final_rows
        varied = any(not leaf.same(trace[0][1].observations, t.observations) for _, t in trace)
        if rows and varied and all(leaf.same(final, first) for final, first in rows):
            what = "final_obs always equals the first observation of the next episode"
            then = "Copy the last observation before the reset: environments reuse their arrays."
            expected, got = "the last of the old", f"the first of the new in {len(rows)} of them"
            self._add("all episode ends", "warning", what, expected, got, then)

    def _check_reproducible(self, trace: list[Entry]) -> bool:
        what = "the same seed and actions give another trajectory"
        then = "Pass seed + i on to env i; mend the environment first if check_env finds this too."
        return self._compare(trace, self._drive(self._probe(), self.actions), what, then)

    def _check_ignored_actions(self, trace: list[Entry]) -> None:
        if self.mode is not AutoresetMode.NEXT_STEP:
            return
        ended = [turnout.ended for _, turnout in trace]
        changed = [
            self._mixed_actions(own, other, rows)
            for own, other, rows in zip(self.actions, self.others, ended, strict=False)
        ]
        what = "the action on the step that resets is not ignored"
        then = "In next_step mode, reset the environment on this step and drop its action."
        self._compare(trace, self._drive(self._probe(), changed), what, then)

    def _mixed_actions(self, own: Any, other: Any, rows: Rows) -> Any:
        single = self.envs.single_action_space
        parts = [leaf.row(single, other if rows[i] else own, i) for i in range(len(rows))]
        return concatenate(single, parts, create_empty_array(single, len(rows)))  # type: ignore[arg-type]

    def _compare(self, trace: list[Entry], again: Iterator[Entry], what: str, then: str) -> bool:
        """Whether both went the same way; the first difference is a finding."""
        for (_, first), (where, second) in zip(trace, again, strict=False):
            for name in ("observations", "rewards", "terminations", "truncations"):
                left, right = getattr(first, name), getattr(second, name)
                if not leaf.same(left, right):
                    expected, got = f"{name} {shorten(left)}", shorten(right)
                    self._add(where, "error", what, expected, got, then)
                    return False
        return True

    def _check_seed_list(self, trace: list[Entry]) -> None:
        seeds = [self.seed + i for i in range(self.envs.num_envs)]
        what = "a list of seeds is not the same as the first one as a number"
        expected = f"reset(seed={shorten(seeds)}) as reset(seed={self.seed})"
        then = "Gymnasium's vector environments take both, env i getting seed + i."
        try:
            observations, _ = self.envs.reset(seed=seeds)  # type: ignore[arg-type]
        except Exception as error:
            self._add("reset", "warning", what, expected, describe(error), then)
            return
        if not leaf.same(trace[0][1].observations, observations):
            self._add("reset", "warning", what, expected, "other observations", then)

    def _check_partial_reset(self, trace: list[Entry]) -> None:
        """Reset env 0 alone in a run like ``trace``: all others must go on as they did there."""
        if self.envs.num_envs == 1 or len(trace) < 2:
            return
        first_end = next((i for i, (_, t) in enumerate(trace) if t.ended.any()), len(trace))
        before = max(0, min(2, first_end - 1, len(trace) - 2))
        probe = self._probe()
        for _ in self._drive(probe, self.actions[:before]):
            pass
        where = f"reset of env 0 after step {before}"
        mask = np.arange(self.envs.num_envs) == 0
        turnout = probe.reset(where, options={"reset_mask": mask})
        self._compare_others(where, trace[before][1].observations, turnout.observations)
        where = f"step {before + 1}, after a reset of env 0"
        turnout = probe.step(where, self.actions[before])
        self._compare_others(where, trace[before + 1][1].observations, turnout.observations)

    def _compare_others(self, where: str, expected: Any, got: Any) -> None:
        single = self.envs.single_observation_space
        for index in range(1, self.envs.num_envs):
            left, right = leaf.row(single, expected, index), leaf.row(single, got, index)
            if not leaf.same(left, right):
                what = "a reset by reset_mask changes environments outside the mask"
                then = "Reset only the masked ones and return the others' last observations."
                shown = f"{shorten(right)} in env {index}"
                self._add(where, "error", what, shorten(left), shown, then)
                return

    def _check_render(self, trace: list[Entry]) -> None:
        if self.envs.render_mode != "rgb_array":
            return
        frames = attempt(self.notebook, "after a step", "render", self.envs.render)
        if not isinstance(frames, tuple) or len(frames) != self.envs.num_envs:
            what, then = "render gives no tuple of frames", "Return one frame an environment."
            expected = f"a tuple of {self.envs.num_envs}"
            self._add("render", "error", what, expected, shorten(frames), then)

    def _check_action_counts(self, trace: list[Entry]) -> None:
        """Too few and too many actions must raise, and do no harm."""
        probe = self._probe()
        for count in (self.envs.num_envs - 1, self.envs.num_envs + 1):
            if count > 0:
                where = f"step with {count} actions for {self.envs.num_envs} environments"
                self._check_refusal(
                    where, batch_space(self.envs.single_action_space, count).sample()
                )
                first = probe.reset(f"reset after a {where}", seed=self.seed)
                if self.reproducible:
                    what, then = "a refused step does harm", "Look at the actions before the step."
                    self._compare(trace, iter([(where, first)]), what, then)

    def _check_refusal(self, where: str, actions: Any) -> None:
        outcome = _within(self.timeout_s, lambda: self.envs.step(actions))
        then = "Compare the number of actions with num_envs first, and raise."
        if outcome == "returned":
            what = "a wrong number of actions is accepted"
            self._add(where, "error", what, "an exception", "a result", then)
        elif outcome == "hung":
            what = "a wrong number of actions hangs"
            got = f"no reply within {self.timeout_s:g} s"
            self._add(where, "error", what, "an exception", got, then)
            raise Stop

    def _add(
        self, where: str, severity: Severity, what: str, expected: str, got: str, then: str
    ) -> None:
        self.notebook.add(where, Problem(severity, what, expected, got, then))


def _within(timeout_s: float, call: Callable[[], Any]) -> str:
    """``"returned"``, ``"raised"``, or ``"hung"``; a call that hangs is left to its thread."""
    outcome = []

    def work() -> None:
        try:
            call()
        except Exception:
            outcome.append("raised")
        else:
            outcome.append("returned")

    thread = threading.Thread(target=work, daemon=True, name="shoal-check")
    thread.start()
    thread.join(timeout_s)
    return outcome[0] if outcome else "hung"
