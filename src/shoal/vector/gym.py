"""Drop-ins for Gymnasium's own vector environments: change one import line.

    from shoal.vector.gym import AsyncVectorEnv, SyncVectorEnv

Constructor arguments, attributes, exceptions and messages are Gymnasium's; underneath is this
engine, so many environments share a worker, a dead worker is an error that says so, and no
environment is built only to be looked at. Shoal's own keywords are accepted as extras.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_differing_spaces, iterate

from shoal.engine.commands import Factory
from shoal.engine.compare import SpacesDiffer
from shoal.engine.pool import Pool
from shoal.errors import ConfigError
from shoal.layout import Array, Layout
from shoal.vector.dropin import Extras, open_pool
from shoal.vector.env import VectorEnv, reset_plan
from shoal.vector.make import Faults
from shoal.vector.waiting import Waiting, let_out

ObservationMode = str | tuple[Space[Any], Space[Any]]


class _DropIn(VectorEnv):
    """What both have in common: Gymnasium's constructor, spaces and exceptions."""

    def __init__(
        self,
        env_fns: Sequence[Factory],
        copy: bool,
        observation_mode: ObservationMode,
        autoreset_mode: str | AutoresetMode,
        extras: Extras,
    ) -> None:
        self.env_fns, self.copy = env_fns, copy
        self.observation_mode, self.autoreset_mode = observation_mode, AutoresetMode(autoreset_mode)
        _check_observation_mode(observation_mode)
        super().__init__(self._open(list(env_fns), extras))
        if isinstance(observation_mode, tuple):
            self.observation_space, self.single_observation_space = observation_mode

    def _set_num_envs(self, num_envs: int) -> None:
        super()._set_num_envs(num_envs)
        if self.observation_mode == "different":
            self.observation_space = batch_differing_spaces(
                self._pool.observation_spaces[:num_envs]
            )

    def _open(self, env_fns: list[Factory], extras: Extras) -> Pool:
        try:
            return open_pool(
                env_fns,
                self.autoreset_mode,
                extras,
                copy=self.copy,
                same_observation_space=self._same_space,
            )
        except SpacesDiffer as error:
            raise RuntimeError(self._space_message(error)) from error

    def _same_space(self, first: Space[Any], other: Space[Any]) -> bool:
        if self.observation_mode == "same":
            return bool(first == other)
        single = self.observation_mode[1] if isinstance(self.observation_mode, tuple) else first
        return is_space_dtype_shape_equiv(single, other)

    def _space_message(self, problem: SpacesDiffer) -> str:
        name = type(self).__name__
        if problem.kind == "action":
            return (
                f"Some environments have an action space different from the first one's: {problem} "
                "In order to batch actions, the action spaces from all environments must be equal."
            )
        if self.observation_mode == "same":
            return (
                f"{name}(..., observation_mode='same') however the sub-environments observation "
                f"spaces are not equivalent. {problem} If this is intentional, use "
                "`observation_mode='different'` instead."
            )
        return (
            f"{name}(..., observation_mode='different' or custom space) however the "
            f"sub-environments observation spaces do not share a common shape and dtype. {problem}"
        )

    def _count_actions(self, actions: Any) -> Any:
        """Actions as the pool takes them; a wrong kind or count raises what Gymnasium raises."""
        if isinstance(actions, np.ndarray) and len(actions.shape) and len(actions) == self.num_envs:
            return actions
        each = list(iterate(self.action_space, actions))
        if len(each) != self.num_envs:
            raise ValueError(
                f"Expected {self.num_envs} actions, one per environment, got {len(each)}."
            )
        return actions

    def get_attr(self, name: str, env_ids: Any = None) -> tuple[Any, ...]:
        """An attribute of each environment."""
        return self.call(name) if env_ids is None else super().get_attr(name, env_ids)

    def __repr__(self) -> str:
        name = f"{self.spec.id}, " if self.spec is not None else ""
        return f"{type(self).__name__}({name}num_envs={self.num_envs})"


class SyncVectorEnv(_DropIn):
    """Gymnasium's `SyncVectorEnv`, on the serial backend."""

    def __init__(
        self,
        env_fns: Sequence[Factory],
        copy: bool = True,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        super().__init__(env_fns, copy, observation_mode, autoreset_mode, Extras())

    @property
    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        """The environments themselves."""
        return self._pool.local_envs()

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return let_out(super().reset, seed=seed, options=options)  # type: ignore[no-any-return]

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        actions = self._count_actions(actions)
        return let_out(super().step, actions)  # type: ignore[no-any-return]

    def call(self, name: str, *args: Any, env_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        call = super().call
        return let_out(call, name, *args, env_ids=env_ids, **kwargs)  # type: ignore[no-any-return]


class AsyncVectorEnv(_DropIn):
    """Gymnasium's `AsyncVectorEnv`, on the process backend.

    `context` is the start method. Workers may always have children, so `daemon` changes nothing;
    neither does `shared_memory`, except that True still refuses custom spaces as Gymnasium does.
    `max_concurrency` limits the number of workers. A `worker` function of one's own is refused:
    there are no pipes here that it could serve.
    """

    def __init__(
        self,
        env_fns: Sequence[Factory],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Callable[..., None] | None = None,
        observation_mode: ObservationMode = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        backend: str = "process",
        num_workers: int | None = None,
        step_timeout_s: float | None = None,
        on_failure: str = "raise",
        faults: Faults | None = None,
    ) -> None:
        self.shared_memory, self.context, self.daemon = shared_memory, context, daemon
        self.worker, self.max_concurrency = worker, _check_concurrency(max_concurrency)
        if worker is not None:
            raise ConfigError(
                "a custom `worker` serves Gymnasium's pipes, which do not exist here. Put what "
                "it does into a wrapper, or use gymnasium.vector.AsyncVectorEnv."
            )
        super().__init__(
            env_fns,
            copy,
            observation_mode,
            autoreset_mode,
            Extras(
                backend=backend,
                num_workers=num_workers or max_concurrency,
                start_method=context,
                step_timeout_s=step_timeout_s,
                on_failure=on_failure,
                faults=faults,
            ),
        )
        self._waiting = Waiting(self._pool, type(self).__name__)
        if shared_memory:
            try:
                _refuse_custom_spaces(self.single_observation_space)
            except ValueError:
                self.close()
                raise

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(self, seed: Any = None, options: Any = None) -> None:
        """Start a reset; `reset_wait` gives its result."""
        self._waiting.check_open()
        plan = reset_plan(seed, options, self.num_envs)
        self._waiting.check_free("reset_async", end="")
        self._waiting.begin(AsyncState.WAITING_RESET, self._pool.start_reset, plan)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        self._waiting.finish(AsyncState.WAITING_RESET, timeout)
        return self._pool.reset_results()

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: Any) -> None:
        """Start a step; `step_wait` gives its result."""
        self._waiting.check_open()
        self._waiting.check_free("step_async")
        actions = self._count_actions(actions)
        self._waiting.begin(AsyncState.WAITING_STEP, self._pool.start_step, actions)

    def step_wait(
        self, timeout: float | None = None
    ) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        self._waiting.finish(AsyncState.WAITING_STEP, timeout)
        return self._pool.step_results()

    def call(self, name: str, *args: Any, env_ids: Any = None, **kwargs: Any) -> tuple[Any, ...]:
        if env_ids is not None:
            return super().call(name, *args, env_ids=env_ids, **kwargs)
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Start a call; `call_wait` gives its results."""
        self._waiting.check_open()
        self._waiting.check_free("call_async")
        every = range(self.num_envs)
        start = self._pool.start_call
        self._waiting.begin(AsyncState.WAITING_CALL, start, name, args, kwargs, every)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        results = self._waiting.finish(AsyncState.WAITING_CALL, timeout)
        return tuple(results[i] for i in range(self.num_envs))

    def set_attr(self, name: str, values: Any, env_ids: Any = None) -> None:
        self._waiting.check_open()
        self._waiting.check_free("set_attr")
        super().set_attr(name, values, env_ids)

    def close_extras(  # type: ignore[override]
        self, timeout: float | None = None, terminate: bool = False, **_: Any
    ) -> None:
        """Close; with a call pending, wait for it at most `timeout` (not at all to terminate)."""
        self._waiting.close(timeout, terminate)


def _check_concurrency(limit: int | None) -> int | None:
    if limit is None:
        return None
    if not isinstance(limit, int | np.integer):
        raise ValueError(f"`max_concurrency` must be an integer or None, got {type(limit)}.")
    if limit < 1:
        raise ValueError(f"`max_concurrency` must be a positive or None, got {limit}.")
    return int(limit)


def _check_observation_mode(mode: ObservationMode) -> None:
    if isinstance(mode, tuple) and len(mode) == 2:
        if not all(isinstance(space, Space) for space in mode):
            raise TypeError(
                "Expected both elements of observation_mode to be Spaces, "
                f"got {type(mode[0])} and {type(mode[1])}"
            )
    elif mode not in ("same", "different"):
        raise ValueError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and "
            f"batch observation space, actual got {mode}"
        )


def _refuse_custom_spaces(space: Space[Any]) -> None:
    for leaf in Layout(space).leaves:
        if not leaf.is_array and not type(leaf.space).__module__.startswith("gymnasium.spaces"):
            raise ValueError(
                "Using `AsyncVector(..., shared_memory=True)` caused an error, you can disable "
                "this feature with `shared_memory=False` however this is slower."
            )
