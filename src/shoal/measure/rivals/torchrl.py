"""TorchRL: ParallelEnv, a process for each environment or several in each; same-step resets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shoal.measure.session import Contestant, Course, NotPossible, Session
from shoal.vector.source import Factory


class TorchSession:
    """Tensor dictionaries: the actions are put into the one that the last step returned."""

    note = ""

    def __init__(self, envs: Any, course: Course, action_space: Any) -> None:
        self._envs, self._num_envs = envs, course.num_envs
        self.action_space = action_space
        self._state: Any = None

    def reset(self) -> None:
        self._envs.set_seed(0)
        self._state = self._envs.reset()

    def prepare(self, actions: Any) -> Any:
        import torch

        shape = (*self._envs.batch_size, *actions.shape[1:])
        return torch.as_tensor(actions).reshape(shape)

    def step(self, prepared: Any) -> int:
        self._state["action"] = prepared
        _, self._state = self._envs.step_and_maybe_reset(self._state)
        return self._num_envs

    def close(self) -> None:
        self._envs.close()


def _open(course: Course) -> Session:
    from torchrl.envs import ParallelEnv

    num_workers = course.num_workers or course.num_envs
    if course.num_envs % num_workers:
        raise NotPossible(f"{course.num_envs} envs do not divide among {num_workers}")
    envs = ParallelEnv(num_workers, _makers(course.factories, num_workers), mp_start_method="fork")
    # Its specs have spaces of their own kind.
    probe = course.factories[0]()
    space = probe.action_space
    probe.close()
    return TorchSession(envs, course, space)


def _makers(factories: Sequence[Factory], num_workers: int) -> list[Callable[[], Any]]:
    each = len(factories) // num_workers
    if each == 1:
        return [partial(_wrap, factory) for factory in factories]
    return [partial(_several, factories[k * each : (k + 1) * each]) for k in range(num_workers)]


def _wrap(factory: Factory) -> Any:
    from torchrl.envs import GymWrapper

    return GymWrapper(factory(), categorical_action_encoding=True)


def _several(factories: Sequence[Factory]) -> Any:
    from torchrl.envs import SerialEnv

    return SerialEnv(len(factories), [partial(_wrap, factory) for factory in factories])


CONTESTANTS = (
    Contestant(
        "torchrl parallel", _open, needs="torchrl", workers=lambda num_envs, cores: (None, cores)
    ),
)
