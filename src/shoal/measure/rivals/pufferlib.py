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


class FirstReady(PufferSession):
    """`send` and `recv` of some of its workers: whoever is ready is sent on."""

    def reset(self) -> None:
        self._count.expect_resets()
        self._envs.async_reset(0)
        self._receive()

    def step(self, prepared: Any) -> int:
        self._envs.send(prepared[self._ready])
        return self._receive()

    def _receive(self) -> int:
        _, _, terminated, truncated, _, self._ready, _ = self._envs.recv()
        return self._count.of_some(terminated | truncated, self._ready)


def _open(backend: str, course: Course, **more: Any) -> Session:
    return PufferSession(_make(backend, course, **more), course)


def _make(backend: str, course: Course, **more: Any) -> Any:
    from pufferlib import vector
    from pufferlib.emulation import GymnasiumPufferEnv

    return vector.make(
        [GymnasiumPufferEnv] * course.num_envs,
        env_args=[[]] * course.num_envs,
        env_kwargs=[{"env_creator": factory} for factory in course.factories],
        backend=getattr(vector, backend),
        num_envs=course.num_envs,
        **more,
    )


def _open_serial(course: Course) -> Session:
    return _open("Serial", course)


def _open_mp(course: Course) -> Session:
    # It counts cores without hyper-threads, and refuses more workers unless told so.
    return _open("Multiprocessing", course, num_workers=_num_workers(course), overwork=True)


def _open_first_ready(course: Course) -> Session:
    """Batches of half its workers.

    As it comes it waits for workers in order (`sync_traj`), and with `zero_copy` for half of them
    that lie side by side; without these, for whoever is first.
    """
    num_workers = _num_workers(course)
    if num_workers < 2:
        raise NotPossible("one worker makes no batches of some")
    envs = _make(
        "Multiprocessing",
        course,
        num_workers=num_workers,
        batch_size=num_workers // 2 * (course.num_envs // num_workers),
        zero_copy=False,
        overwork=True,
    )
    envs.sync_traj = False  # `make` takes no argument for it
    return FirstReady(envs, course)


def _num_workers(course: Course) -> int:
    num_workers = course.num_workers or course.num_envs
    if course.num_envs % num_workers:
        raise NotPossible(f"{course.num_envs} envs do not divide among {num_workers} workers")
    return num_workers


def _workers(num_envs: int, cores: int) -> Sequence[int]:
    """The most that hold equally many environments, with and without a core for its caller.

    The caller spins, so it may be better off with a core of its own. The default, a worker for each
    environment, is what PufferLib refuses itself where cores are fewer.
    """
    shares = [one for one in range(1, num_envs + 1) if num_envs % one == 0]
    return sorted(
        {max(one for one in shares if one <= max(1, most)) for most in (cores - 1, cores)}
    )


def _workers_of_some(num_envs: int, cores: int) -> Sequence[int]:
    """The same, but two at least."""
    return [one for one in _workers(num_envs, cores) if one > 1] or [2]


CONTESTANTS = (
    Contestant("pufferlib serial", _open_serial, needs="pufferlib"),
    Contestant("pufferlib mp", _open_mp, needs="pufferlib", workers=_workers),
    Contestant(
        "pufferlib mp first-ready", _open_first_ready, needs="pufferlib", workers=_workers_of_some
    ),
)
