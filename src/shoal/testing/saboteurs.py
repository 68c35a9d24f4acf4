"""Saboteurs: environments that fail in one chosen way at one chosen moment.

Who is a saboteur is for the caller's factory to choose; everything else about it is an ordinary
environment, by default a counting world.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium

from shoal.testing.mishap import (
    ACTS,
    BAD_DATA,
    DEATHS,
    EXIT_CODE,
    HANGS,
    NUISANCES,
    RAISES,
    SPOILS,
    How,
    NeedsArgsError,
    UnpicklableError,
    unspoiled,
)
from shoal.testing.worlds import CountingWorld

__all__ = [
    "BAD_DATA",
    "DEATHS",
    "EXIT_CODE",
    "HANGS",
    "NUISANCES",
    "RAISES",
    "WHENS",
    "How",
    "NeedsArgsError",
    "Saboteur",
    "UnpicklableError",
    "When",
]

When = Literal["construct", "reset", "step", "render", "call", "close"]
WHENS: tuple[When, ...] = get_args(When)


class Saboteur(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Fails as ``how`` says in the method that ``when`` says; otherwise it is ``env``.

    Args:
        how: one of ``RAISES``, ``DEATHS``, ``HANGS``, ``BAD_DATA`` or ``NUISANCES``. Bad data can
            only come out of ``reset`` and ``step``. ``"leak"`` goes on at every later step too.
        when: ``"call"`` means the method ``poke``.
        at_episode: for ``reset`` and ``step``: the episode (0 is the first) in which to fail.
        at_step: for ``step``: the step (1 is the first of an episode) at which to fail.
        once_path: a marker file, made just before failing. While it exists nothing fails, so
            that an environment that is rebuilt, or another one with this path, is well-behaved.
        tag: the tag of the counting world inside, when no ``env`` is given.
        env: the environment to spoil.
    """

    leak_bytes = 8 << 20

    def __init__(
        self,
        how: How,
        when: When = "step",
        *,
        at_episode: int = 0,
        at_step: int = 1,
        once_path: str | os.PathLike[str] | None = None,
        tag: int = 0,
        env: gymnasium.Env[Any, Any] | None = None,
    ) -> None:
        _check_plan(how, when)
        self.how = how
        self.when = when
        self.at_episode = at_episode
        self.at_step = at_step
        self.once_path = once_path
        self.leaked: list[bytearray] = []
        self._episode = -1
        self._step = 0
        self._misbehave("construct")
        super().__init__(_default_world(how, tag) if env is None else env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._episode += 1
        self._step = 0
        spoil = self._misbehave("reset")
        observation, info = self.env.reset(seed=seed, options=options)
        return spoil(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._step += 1
        spoil = self._misbehave("step")
        observation, reward, terminated, truncated, info = self.env.step(action)
        return spoil(observation), reward, terminated, truncated, info

    def render(self) -> Any:
        self._misbehave("render")
        return self.env.render()

    def poke(self) -> str:
        """The method to reach through ``call``."""
        self._misbehave("call")
        return "well"

    def close(self) -> None:
        self._misbehave("close")
        self.env.close()

    def _misbehave(self, phase: When) -> Callable[[Any], Any]:
        """Fail now if this is the moment; else return what to do to the observation."""
        if self.leaked:
            self._leak()
        if not self._is_moment(phase) or not self._claim():
            return unspoiled
        if self.how == "leak":
            self._leak()
        elif self.how in ACTS:
            ACTS[self.how](f"sabotage in {phase} (episode {self._episode}, step {self._step})")
        return SPOILS.get(self.how, unspoiled)

    def _is_moment(self, phase: When) -> bool:
        if phase != self.when:
            return False
        if phase not in ("reset", "step"):
            return True
        return self._episode == self.at_episode and (phase == "reset" or self._step == self.at_step)

    def _claim(self) -> bool:
        """True for the one failure that a marker file allows, always without a marker file."""
        if self.once_path is None:
            return True
        try:
            Path(self.once_path).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _leak(self) -> None:
        # Written to, so that the memory is really there and not only promised.
        self.leaked.append(bytearray(b"x") * self.leak_bytes)


def _check_plan(how: str, when: str) -> None:
    known = (*RAISES, *DEATHS, *HANGS, *BAD_DATA, *NUISANCES)
    if how not in known:
        raise ValueError(f"unknown how={how!r}: expected one of {', '.join(known)}")
    if when not in WHENS:
        raise ValueError(f"unknown when={when!r}: expected one of {', '.join(WHENS)}")
    if how in BAD_DATA and when not in ("reset", "step"):
        raise ValueError(
            f"how={how!r} spoils observations: expected when='reset' or 'step', got {when!r}"
        )


def _default_world(how: str, tag: int) -> CountingWorld:
    needs_dict = how in ("missing_key", "extra_key", "nan", "inf")
    return CountingWorld(tag, obs="dict" if needs_dict else "vector")
