"""Shoal itself: each backend in lock-step, `auto`, first-ready batches of half the envs, groups.

`shoal auto views` is `auto` with `copy=False`, for rivals whose results are views as well. For
several agents there are `shoal team` and `shoal turns`, and the drop-in for AgileRL. `shoal sb3
subproc` is the drop-in for Stable-Baselines3, beside `sb3 subproc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import shoal
from shoal.measure.session import (
    Contestant,
    Course,
    Kind,
    NotPossible,
    Session,
    TransitionCount,
    VectorSession,
)
from shoal.measure.several import AgentsSession, team_space


class FirstReady:
    """Takes whoever is ready and sends them on."""

    def __init__(self, envs: shoal.VectorEnv, note: str) -> None:
        self._envs, self.note = envs, note
        self.action_space = envs.single_action_space
        self._count = TransitionCount.by_mode(envs)
        self._is_under_way = False

    def reset(self) -> None:
        self._count.forget()
        self._envs.reset(seed=0)

    def prepare(self, actions: Any) -> Any:
        if not isinstance(actions, np.ndarray):
            raise NotPossible("actions of some environments are picked from arrays only")
        return actions

    def step(self, prepared: Any) -> int:
        if not self._is_under_way:
            self._envs.send(prepared)
            self._is_under_way = True
        batch = self._envs.recv()
        self._envs.send(prepared[batch.env_ids], batch.env_ids)
        return self._count.of_some(batch.terminations | batch.truncations, batch.env_ids)

    def close(self) -> None:
        self._envs.close()


class TwoGroups(FirstReady):
    """Takes every other environment and sends it on, while the rest step: as a learner in turns."""

    def __init__(self, envs: shoal.VectorEnv, note: str) -> None:
        super().__init__(envs, note)
        self._groups = [np.arange(first, envs.num_envs, 2) for first in range(2)]
        self._still_out = [0, 0]
        self._turn = 0

    def step(self, prepared: Any) -> int:
        turn, steps = self._turn, 0
        while self._still_out[turn]:
            batch = self._envs.recv(self._still_out[turn])
            of_second = int(np.count_nonzero(batch.env_ids % 2))
            self._still_out[0] -= len(batch.env_ids) - of_second
            self._still_out[1] -= of_second
            steps += self._count.of_some(batch.terminations | batch.truncations, batch.env_ids)
        ids = self._groups[turn]
        self._envs.send(prepared[ids], ids)
        self._still_out[turn] = len(ids)
        self._turn = 1 - turn
        return steps


def _open(backend: str, course: Course, **more: Any) -> Session:
    envs = _make(backend, course, **more)
    return VectorSession(envs, _note(envs) if backend == "auto" else "")


def _open_first_ready(backend: str, course: Course) -> Session:
    envs = _make(backend, course, batch_size=max(1, course.num_envs // 2))
    return FirstReady(envs, _note(envs) if backend == "auto" else "")


def _open_two_groups(course: Course) -> Session:
    if course.num_envs < 2:
        raise NotPossible("one environment makes no two groups")
    return TwoGroups(_make("process", course), "")


def _open_team(backend: str, course: Course) -> Session:
    envs: Any = _make(backend, course, shoal.make_team, autoreset="same_step")
    return AgentsSession(envs, team_space(envs), _note(envs) if backend == "auto" else "")


def _open_turns(backend: str, course: Course) -> Session:
    envs: Any = _make(backend, course, shoal.make_turns)
    space = envs.single_action_space(envs.possible_agents[0])
    return AgentsSession(envs, space, _note(envs) if backend == "auto" else "")


def _open_drop_in(course: Course) -> Session:
    from shoal.vector.agilerl import AsyncPettingZooVecEnv

    envs = AsyncPettingZooVecEnv(list(course.factories), num_workers=course.num_workers)
    return AgentsSession(envs, team_space(envs))


def _open_sb3(course: Course) -> Session:
    from shoal.measure.rivals.sb3 import VecEnvSession
    from shoal.vector.sb3 import SubprocVecEnv

    return VecEnvSession(SubprocVecEnv(list(course.factories), num_workers=course.num_workers))


def _make(backend: str, course: Course, make: Callable[..., Any] = shoal.make, **more: Any) -> Any:
    env = list(course.factories) if course.is_mixed else course.env
    return make(env, course.num_envs, backend=backend, num_workers=course.num_workers, **more)


def _note(envs: Any) -> str:
    stats = envs.stats()
    return f"{stats['backend']}, {stats['num_workers']} workers"


def _workers(name: str, num_envs: int, cores: int) -> Sequence[int | None]:
    """The default; where there are only processes, also with a core left for the caller."""
    leaves_one = name in ("process", "first-ready", "two groups") and 2 < cores <= num_envs
    return (None, cores - 1) if leaves_one else (None,)


BACKENDS = ("auto", "serial", "thread", "process", "hybrid")
OPENED: dict[str, Callable[[Course], Session]] = {
    **{name: partial(_open, name) for name in BACKENDS},
    "auto views": partial(_open, "auto", copy=False),
    "first-ready": partial(_open_first_ready, "process"),
    "first-ready hybrid": partial(_open_first_ready, "hybrid"),
    "auto first-ready": partial(_open_first_ready, "auto"),
    "two groups": _open_two_groups,
}

SEVERAL: dict[str, tuple[Kind, Callable[[Course], Session]]] = {
    **{f"team {name}": ("team", partial(_open_team, name)) for name in BACKENDS},
    "team agilerl": ("team", _open_drop_in),
    **{f"turns {name}": ("turns", partial(_open_turns, name)) for name in BACKENDS},
}

CONTESTANTS = (
    *(
        Contestant(f"shoal {name}", opened, family="shoal", workers=partial(_workers, name))
        for name, opened in OPENED.items()
    ),
    Contestant("shoal sb3 subproc", _open_sb3, family="shoal", needs="stable_baselines3"),
    *(
        Contestant(f"shoal {name}", opened, family="shoal", plays=(kind,))
        for name, (kind, opened) in SEVERAL.items()
    ),
)
