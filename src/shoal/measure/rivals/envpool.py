"""EnvPool: environments in C++, on threads. The ceiling, and no rival: it runs no Python at all."""

from __future__ import annotations

from typing import Any

from shoal.measure.session import Contestant, Course, NotPossible, Session, TransitionCount

_OWN = {"cartpole": "CartPole-v1", "halfcheetah": "HalfCheetah-v4"}
"""Its name for what a course's name ends in."""


class PoolSession:
    """Its Gymnasium-like interface; next-step resets."""

    note = ""

    def __init__(self, envs: Any, course: Course) -> None:
        self._envs = envs
        self.action_space = envs.action_space
        self._count = TransitionCount(course.num_envs, resets_take_a_call=True)

    def reset(self) -> None:
        self._count.forget()
        self._envs.reset()

    def prepare(self, actions: Any) -> Any:
        return actions

    def step(self, prepared: Any) -> int:
        _, _, terminated, truncated, _ = self._envs.step(prepared)
        return self._count.of_all(terminated | truncated)

    def close(self) -> None:
        self._envs.close()


def _open(course: Course) -> Session:
    import envpool

    known = course.env.partition(":")[2].lower() or course.env.partition("-")[0].lower()
    if known not in _OWN:
        raise NotPossible("it has no such environment of its own")
    more = {} if course.num_workers is None else {"num_threads": course.num_workers}
    return PoolSession(
        envpool.make(_OWN[known], env_type="gymnasium", num_envs=course.num_envs, seed=0, **more),
        course,
    )


CONTESTANTS = (
    Contestant(
        "envpool",
        _open,
        family="native",
        needs="envpool",
        workers=lambda num_envs, cores: (None, min(num_envs, cores)),
    ),
)
