"""What is measured: a contestant opens a session on a course, and the timed loop calls its `step`.

A session counts *transitions*: where ended environments are reset by the next call, that call is
none for them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.layout import Array
from shoal.vector.source import Factory, resolve

Family = Literal["shoal", "rival", "native"]
Kind = Literal["one", "team", "turns"]
"""Who acts in an environment: one agent, several at once, or several in turn."""


class NotPossible(Exception):
    """This contestant cannot do this course; the message says why."""


class Session(Protocol):
    """Environments that a contestant has opened."""

    action_space: gymnasium.Space[Any]
    """Of one environment."""
    note: str
    """What was chosen, where something was."""

    def reset(self) -> None: ...

    def prepare(self, actions: Any) -> Any:
        """Actions of all environments as `step` takes them: done before the clock runs."""

    def step(self, prepared: Any) -> int:
        """One call; the transitions in it."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Mixed:
    """Environments that differ by their number; named like a factory, as "module:name"."""

    pick: Callable[[int], Factory]


@dataclass(frozen=True, slots=True)
class Course:
    """What a contestant is to step: one factory for each environment, in how many workers."""

    env: str
    factories: Sequence[Factory]
    is_mixed: bool = False
    """Whether the factories differ."""
    num_workers: int | None = None
    """None is the contestant's own default."""

    @property
    def num_envs(self) -> int:
        return len(self.factories)

    @classmethod
    def named(cls, env: str, num_envs: int, num_workers: int | None = None) -> Course:
        """A course of environments by name: a Gymnasium id, or "module:factory"."""
        factories = resolve(env).factories * num_envs
        module, _, name = env.partition(":")
        found = getattr(sys.modules.get(module), name, None)
        if isinstance(found, Mixed):
            return cls(env, tuple(map(found.pick, range(num_envs))), True, num_workers)
        return cls(env, factories, False, num_workers)


@dataclass(frozen=True, slots=True)
class Contestant:
    """Somebody who can step many environments at once."""

    name: str
    open: Callable[[Course], Session]
    family: Family = "rival"
    """Rivals run the same Python environments; native ones have their own, in compiled code."""
    needs: str = ""
    """The package that must be importable."""
    workers: Callable[[int, int], Sequence[int | None]] = lambda num_envs, cores: (None,)
    """Numbers of workers worth trying for (environments, cores): the default, the best."""
    plays: Sequence[Kind] = ("one",)
    """What kinds of environments it steps."""
    only_starts: bool = False
    """Steps like another contestant, and only its start is of interest."""


class TransitionCount:
    """Tells transitions from rows that only reset."""

    def __init__(self, num_envs: int, *, resets_take_a_call: bool) -> None:
        self._num_envs, self._resets_take_a_call = num_envs, resets_take_a_call
        self._num_ended = 0
        self._ended = np.zeros(num_envs, np.bool_)

    @classmethod
    def by_mode(cls, envs: gymnasium.vector.VectorEnv[Any, Any, Any]) -> TransitionCount:
        """For a vector environment that says which mode it is in."""
        mode = envs.metadata["autoreset_mode"]
        return cls(envs.num_envs, resets_take_a_call=mode is AutoresetMode.NEXT_STEP)

    def of_all(self, ended: Array) -> int:
        """A call that stepped every environment."""
        transitions = self._num_envs - self._num_ended
        if self._resets_take_a_call:
            self._num_ended = int(np.count_nonzero(ended))
        return transitions

    def of_some(self, ended: Array, env_ids: Array) -> int:
        """A call that returned some of them."""
        transitions = len(env_ids)
        if self._resets_take_a_call:
            transitions -= int(np.count_nonzero(self._ended[env_ids]))
            self._ended[env_ids] = ended
        return transitions

    def expect_resets(self) -> None:
        """The first row that is returned of each will be that of its reset (`of_some` only)."""
        self._ended[:] = True

    def forget(self) -> None:
        """All were reset by hand."""
        self._num_ended = 0
        self._ended[:] = False


class VectorSession:
    """Any `gymnasium.vector.VectorEnv`, in any autoreset mode."""

    def __init__(self, envs: gymnasium.vector.VectorEnv[Any, Any, Any], note: str = "") -> None:
        self._envs, self.note = envs, note
        self.action_space = envs.single_action_space
        self._resets_by_hand = envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
        self._count = TransitionCount.by_mode(envs)

    def reset(self) -> None:
        self._count.forget()
        self._envs.reset(seed=0)

    def prepare(self, actions: Any) -> Any:
        return actions

    def step(self, prepared: Any) -> int:
        _, _, terminated, truncated, _ = self._envs.step(prepared)
        ended = terminated | truncated
        if self._resets_by_hand and ended.any():
            self._envs.reset(options={"reset_mask": ended})
        return self._count.of_all(ended)

    def close(self) -> None:
        self._envs.close()
