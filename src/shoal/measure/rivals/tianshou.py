"""Tianshou: a process for each environment, also first-ready; ended environments reset by hand."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shoal.layout import Array
from shoal.measure.session import Contestant, Course, Session


class TianshouSession:
    """Steps those that are ready (all of them, without `wait_num`), and resets who has ended."""

    note = ""

    def __init__(self, envs: Any, course: Course) -> None:
        self._envs = envs
        self.action_space = envs.action_space[0]
        self._ready = np.arange(course.num_envs)

    def reset(self) -> None:
        self._envs.reset(seed=0)

    def prepare(self, actions: Any) -> Any:
        return actions

    def step(self, prepared: Any) -> int:
        ready = self._ready
        _, _, terminated, truncated, infos = self._envs.step(prepared[ready], ready)
        if self._envs.is_async:
            self._ready = np.array([info["env_id"] for info in infos])
        self._reset(self._ready[terminated | truncated])
        return len(self._ready)

    def _reset(self, ended: Array) -> None:
        if len(ended):
            self._envs.reset(ended)

    def close(self) -> None:
        self._envs.close()


def _open(kind: str, first_ready: bool, course: Course) -> Session:
    from tianshou import env as tianshou

    wait_num = max(1, course.num_envs // 2) if first_ready else None
    make = getattr(tianshou, kind)
    return TianshouSession(make(list(course.factories), wait_num=wait_num), course)


CONTESTANTS = tuple(
    Contestant(f"tianshou {name}", partial(_open, kind, first_ready), needs="tianshou")
    for name, kind, first_ready in (
        ("dummy", "DummyVectorEnv", False),
        ("shmem", "ShmemVectorEnv", False),
        ("first-ready", "ShmemVectorEnv", True),
    )
)
