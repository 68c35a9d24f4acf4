"""PufferLib: serial, and workers that hold several environments each; next-step resets.

What it returns are views of its live buffers, and its spinning takes no heed of cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.measure.session import Contestant, Course, NotPossible, Session, TransitionCount


class PufferSession:
    """Its own interface, close to Gymnasium's."""

    note = ""

    def __init__(self, envs: Any, course: Course) -> None:
        self._envs = envs
        self.action_space = envs.single_action_space
        self._count = TransitionCount(course.num_envs, resets_take_a_call=True)

    def reset(self) -> None:
        self._count.forget()
        self._envs.reset(seed=0)

    def prepare(self, actions: Any) -> Any:
        return actions

    def step(self, prepared: Any) -> int:
        _, _, terminated, truncated, _ = self._envs.step(prepared)
        return self._count.of_all(terminated | truncated)

    def close(self) -> None:
        self._envs.close()


def _open(backend: str, course: Course, **more: Any) -> Session:
    from pufferlib import vector
    from pufferlib.emulation import GymnasiumPufferEnv

    envs = vector.make(
        [GymnasiumPufferEnv] * course.num_envs,
        env_args=[[]] * course.num_envs,
        env_kwargs=[{"env_creator": factory} for factory in course.factories],
        backend=getattr(vector, backend),
        num_envs=course.num_envs,
        **more,
    )
    return PufferSession(envs, course)


def _open_serial(course: Course) -> Session:
    return _open("Serial", course)


def _open_mp(course: Course) -> Session:
    num_workers = course.num_workers or course.num_envs
    if course.num_envs % num_workers:
        raise NotPossible(f"{course.num_envs} envs do not divide among {num_workers} workers")
    # It counts cores without hyper-threads, and refuses more workers unless told so.
    return _open("Multiprocessing", course, num_workers=num_workers, overwork=True)


def _workers(num_envs: int, cores: int) -> Sequence[int]:
    """The most that hold equally many environments, with and without a core for its caller.

    The caller spins, so it may be better off with a core of its own. The default, a worker for each
    environment, is what PufferLib refuses itself where cores are fewer.
    """
    shares = [one for one in range(1, num_envs + 1) if num_envs % one == 0]
    return sorted(
        {max(one for one in shares if one <= max(1, most)) for most in (cores - 1, cores)}
    )


CONTESTANTS = (
    Contestant("pufferlib serial", _open_serial, needs="pufferlib"),
    Contestant("pufferlib mp", _open_mp, needs="pufferlib", workers=_workers),
)
