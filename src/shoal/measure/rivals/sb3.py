"""Stable-Baselines3: all in this process, or one process for each environment; same-step resets."""

from __future__ import annotations

from functools import partial
from typing import Any

from shoal.measure.session import Contestant, Course, Session


class VecEnvSession:
    """SB3's own interface: one `dones`, and the ended environment is reset in the same call."""

    note = ""

    def __init__(self, envs: Any) -> None:
        self._envs = envs
        self._num_envs: int = envs.num_envs
        self.action_space = envs.action_space

    def reset(self) -> None:
        self._envs.seed(0)
        self._envs.reset()

    def prepare(self, actions: Any) -> Any:
        return actions

    def step(self, prepared: Any) -> int:
        self._envs.step(prepared)
        return self._num_envs

    def close(self) -> None:
        self._envs.close()


def _open_dummy(course: Course) -> Session:
    from stable_baselines3.common.vec_env import DummyVecEnv

    return VecEnvSession(DummyVecEnv(list(course.factories)))


def _open_subproc(start_method: str | None, course: Course) -> Session:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return VecEnvSession(SubprocVecEnv(list(course.factories), start_method=start_method))


CONTESTANTS = (
    Contestant("sb3 dummy", _open_dummy, needs="stable_baselines3"),
    # Its default start method makes every worker import torch: minutes for 64 of them, and not a
    # step faster. That start is measured under its own name.
    Contestant("sb3 subproc", partial(_open_subproc, "fork"), needs="stable_baselines3"),
    Contestant(
        "sb3 subproc default",
        partial(_open_subproc, None),
        needs="stable_baselines3",
        only_starts=True,
    ),
)
