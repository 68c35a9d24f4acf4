"""SuperSuit: a team as rows of a vector environment, several of them to a process.

It copies one environment, takes teams of agents that are alike and end together, and resets in the
same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.measure.session import Contestant, Course, NotPossible, Session
from shoal.measure.several import team_space


class RowsSession:
    """Rows are agents: those of the first environment, then those of the second."""

    note = ""

    def __init__(self, envs: Any, action_space: Any, num_envs: int) -> None:
        self._envs, self.action_space, self._num_envs = envs, action_space, num_envs

    def reset(self) -> None:
        self._envs.reset(seed=0)

    def prepare(self, actions: Any) -> Any:
        return np.stack([actions[name] for name in self.action_space], axis=1).reshape(
            -1, *self._envs.action_space.shape
        )

    def step(self, prepared: Any) -> int:
        self._envs.step(prepared)
        return self._num_envs

    def close(self) -> None:
        self._envs.close()


def _open(course: Course) -> Session:
    import supersuit

    if course.is_mixed:
        raise NotPossible("its environments are copies of one")
    env = course.factories[0]()
    rows = supersuit.pettingzoo_env_to_vec_env_v1(env)
    envs = supersuit.concat_vec_envs_v1(
        rows, course.num_envs, num_cpus=course.num_workers or course.num_envs
    )
    return RowsSession(envs, team_space(env), course.num_envs)


def _workers(num_envs: int, cores: int) -> Sequence[int]:
    """In this process, and as many as cores; it has no default of its own."""
    return sorted({1, min(num_envs, cores)})


CONTESTANTS = (
    Contestant("supersuit concat", _open, needs="supersuit", plays=("team",), workers=_workers),
)
