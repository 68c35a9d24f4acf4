"""Drop-ins for Stable-Baselines3's own vector environments: change one import line.

    from shoal.vector.sb3 import DummyVecEnv, SubprocVecEnv

Both are a `stable_baselines3.common.vec_env.VecEnv`, so its algorithms, wrappers and callbacks take
them. Underneath is this engine: many environments share a worker, no main guard is needed, and
when a worker dies only its episodes are lost.
"""

from __future__ import annotations

import multiprocessing
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import concatenate, create_empty_array

from shoal.errors import ContractError
from shoal.extras import needs
from shoal.layout import Array
from shoal.vector import reach
from shoal.vector.agents.rows import PRESENT, TeamRows, of_row, rows_of_team
from shoal.vector.agents.team import TeamVectorEnv
from shoal.vector.dropin import Extras, as_raised, open_pool
from shoal.vector.env import describe_pool
from shoal.vector.make import Faults

with needs("stable_baselines3", "sb3"):
    from stable_baselines3.common.preprocessing import check_for_nested_spaces
    from stable_baselines3.common.vec_env.base_vec_env import (
        VecEnv,
        VecEnvIndices,
        VecEnvObs,
        VecEnvStepReturn,
    )

if TYPE_CHECKING:
    from shoal.engine.pool import Pool

EnvFns = Sequence[Callable[[], gymnasium.Env[Any, Any]]]


def _open(env_fns: EnvFns, extras: Extras) -> Pool:
    return open_pool(
        list(env_fns),
        AutoresetMode.SAME_STEP,
        extras,
        wrappers=(reach.as_gymnasium,),
        same_observation_space=is_space_dtype_shape_equiv,
        infos_apart=True,
    )


class _DropIn(VecEnv):
    """What all have in common: all but how a step is begun. `envs` says what a row is."""

    def __init__(self, pool: Pool, envs: Pool | TeamRows) -> None:
        self.waiting, self._pool = False, pool
        try:
            super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        except BaseException:
            pool.close()
            raise
        self.metadata = dict(pool.first.metadata)
        self._has_parts = isinstance(
            self.action_space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple
        )

    def reset(self) -> VecEnvObs:
        """Reset all, with what `seed` and `set_options` have said since the last time.

        A step that was begun is forgotten. What environments say is in `reset_infos`.
        """
        self.waiting = False
        args = zip(self._seeds, self._options, strict=True)
        plan = {i: (seed, options or None) for i, (seed, options) in enumerate(args)}
        observations, self.reset_infos = as_raised(self._pool.reset, plan)
        self._reset_seeds()
        self._reset_options()
        return observations  # type: ignore[no-any-return]

    def _told(
        self, results: tuple[Any, Array, Array, Array, list[dict[str, Any]]]
    ) -> VecEnvStepReturn:
        """The results of a step, as Stable-Baselines3 has them."""
        observations, rewards, terminations, truncations, infos = results
        dones = terminations | truncations
        for info in infos:
            info["TimeLimit.truncated"] = False
        for i in np.flatnonzero(dones).tolist():
            of_reset = infos[i]
            del of_reset["TimeLimit.truncated"]
            info = dict(of_reset.pop("final_info"))  # which several may have in common
            info["TimeLimit.truncated"] = bool(truncations[i] and not terminations[i])
            info["terminal_observation"] = of_reset.pop("final_obs")
            infos[i], self.reset_infos[i] = info, of_reset
        return observations, rewards.astype(np.float32), dones, infos

    def _batched(self, actions: Any) -> Any:
        """Actions, one for each environment, as the pool takes them."""
        if len(actions) != self.num_envs:
            raise ContractError(
                f"{len(actions)} actions were given; expected {self.num_envs}, one for each "
                "environment."
            )
        if not self._has_parts:
            return actions
        empty: Any = create_empty_array(self.action_space, self.num_envs)
        return concatenate(self.action_space, actions, empty)

    def close(self) -> None:
        """Close all environments and end all workers; safe twice."""
        self._pool.close()

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def stats(self) -> dict[str, Any]:
        """What the engine knows of itself: as `stats` of `shoal.VectorEnv`."""
        return describe_pool(self._pool, "as asked")

    # --- single environments ----------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return self._ask(indices, reach.get_attr, attr_name)

    def has_attr(self, attr_name: str) -> bool:
        return all(self._ask(None, reach.has_attr, attr_name))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute where it is, below wrappers too; one that is new, on the outermost.

        It is set again in an environment that is rebuilt.
        """
        self._check_idle("set_attr")
        values = dict.fromkeys(self._ids(indices), value)
        as_raised(self._pool.set_attr, attr_name, values)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        return self._ask(indices, reach.env_method, method_name, *method_args, **method_kwargs)

    def env_is_wrapped(
        self,
        wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]],
        indices: VecEnvIndices = None,
    ) -> list[bool]:
        return self._ask(indices, reach.env_is_wrapped, reach.full_name(wrapper_class))

    def get_images(self) -> Sequence[Any]:
        """A picture of each environment, where they make pictures; else a warning and Nones."""
        if self.render_mode == "rgb_array":
            return self.env_method("render")
        warnings.warn(
            f"there are no images: the environments were made with render_mode={self.render_mode}, "
            "and only 'rgb_array' gives any.",
            stacklevel=2,
        )
        return [None] * self.num_envs

    def _ask(
        self, indices: VecEnvIndices, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> list[Any]:
        self._check_idle(function.__name__)
        return list(as_raised(self._pool.call, function, args, kwargs, self._ids(indices)))

    def _ids(self, indices: VecEnvIndices) -> list[int]:
        """Which environments are meant; negative numbers count from the last."""
        known = range(self.num_envs)
        return [known[operator.index(i)] for i in self._get_indices(indices)]

    def _check_idle(self, what: str) -> None:
        if self.waiting:
            raise ContractError(f"{what}: a step is under way. Call step_wait first.")


class DummyVecEnv(_DropIn):
    """Stable-Baselines3's `DummyVecEnv`, on the serial backend."""

    def __init__(self, env_fns: EnvFns) -> None:
        pool = _open(env_fns, Extras())
        super().__init__(pool, pool)
        try:
            check_for_nested_spaces(self.observation_space)
            _check_distinct(self.envs)
        except BaseException:
            self._pool.close()
            raise

    @property
    def envs(self) -> list[gymnasium.Env[Any, Any]]:
        """The environments themselves."""
        return self._pool.local_envs()

    def step_async(self, actions: Any) -> None:
        """Keep the actions until `step_wait`: nobody is there to begin."""
        self.actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        actions = self.actions[: self.num_envs]  # theirs does not look at any that are left over
        return self._told(as_raised(self._pool.step, self._batched(actions)))


def _check_distinct(envs: Sequence[gymnasium.Env[Any, Any]]) -> None:
    if len({id(env.unwrapped) for env in envs}) < len(envs):
        raise ValueError(
            "two of the functions returned the same environment; expected a new one of each call. "
            "Let them make it: DummyVecEnv([lambda: gym.make(...)] * n), not [lambda: env] * n."
        )


class SubprocVecEnv(_DropIn):
    """Stable-Baselines3's `SubprocVecEnv`, on the process backend.

    `num_workers` is at most the number of cores unless you say more; environments are spread over
    them. A worker that dies is an error (`WorkerDied`), as code written for Stable-Baselines3 does
    not expect episodes to be cut. With `on_failure="restart"` its environments are built anew: the
    step reports their episodes as cut off, `TimeLimit.truncated` with the last known observation as
    `terminal_observation` and `restarted` in the info. "replay", `step_timeout_s` and `faults` are
    those of `shoal.make`.
    """

    def __init__(
        self,
        env_fns: EnvFns,
        start_method: str | None = None,
        *,
        backend: str = "process",
        num_workers: int | None = None,
        step_timeout_s: float | None = None,
        on_failure: str = "raise",
        faults: Faults | None = None,
    ) -> None:
        multiprocessing.get_context(start_method)  # raises what theirs would, for a name unknown
        extras = Extras(backend, num_workers, start_method, step_timeout_s, on_failure, faults)
        pool = _open(env_fns, extras)
        super().__init__(pool, pool)

    def step(self, actions: Any) -> VecEnvStepReturn:
        """Both at once, which is quicker."""
        self._check_idle("step")
        return self._told(as_raised(self._pool.step, self._batched(actions)))

    def step_async(self, actions: Any) -> None:
        self._check_idle("step_async")
        self._pool.start_step(self._batched(actions))
        self.waiting = True

    def step_wait(self) -> VecEnvStepReturn:
        if not self.waiting:
            raise ContractError("step_wait: no step was begun. Call step_async first.")
        self.waiting = False
        as_raised(self._pool.finish)
        return self._told(self._pool.step_results())


class TeamVecEnv(_DropIn):
    """A team whose agents are alike, each agent of each environment a row of its own.

    `envs` are those of `shoal.make_team` with `autoreset="same_step"`, on any backend; they are
    closed with it. Row `i * num_agents + k` is agent k of environment i, and `present` in its info
    says whether that agent was there: see `rows_of_team`. What is asked of a row is asked of its
    environment, once for all of its rows; its seed and options are those of its first row.
    """

    def __init__(self, envs: TeamVectorEnv) -> None:
        self.rows, self._team_size = rows_of_team(envs), envs.num_agents
        super().__init__(envs.below._pool, self.rows)
        self.metadata = dict(envs.metadata)

    def reset(self) -> VecEnvObs:
        """Reset all, with what `seed` and `set_options` have said since the last time."""
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        options = [one or None for one in self._options]
        observations, infos = as_raised(self.rows.reset, seed=seeds, options=options)
        self.reset_infos = self._apart(infos)
        self._reset_seeds()
        self._reset_options()
        return observations  # type: ignore[no-any-return]

    def step_async(self, actions: Any) -> None:
        """Keep the actions until `step_wait`."""
        self.actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        *told, infos = as_raised(self.rows.step, self._batched(self.actions))
        results = self._told((*told, self._apart(infos)))
        for info, present in zip(results[3], infos[PRESENT].tolist(), strict=True):
            info[PRESENT] = present
        return results

    def get_images(self) -> Sequence[Any]:
        """A picture of each environment, and not of each row."""
        return super().get_images()[:: self._team_size]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the environments of these rows."""
        values = dict.fromkeys(self._teams(self._ids(indices)), value)
        as_raised(self._pool.set_attr, attr_name, values)

    def close(self) -> None:
        """Close all environments and end all workers; safe twice."""
        self.rows.close()

    def _ask(
        self, indices: VecEnvIndices, function: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> list[Any]:
        teams = self._teams(rows := self._ids(indices))
        answers = as_raised(self._pool.call, function, args, kwargs, teams)
        by_team = dict(zip(teams, answers, strict=True))
        return [by_team[row // self._team_size] for row in rows]

    def _teams(self, rows: Sequence[int]) -> list[int]:
        """The environments in which these rows are, each once."""
        return list(dict.fromkeys(row // self._team_size for row in rows))

    def _apart(self, infos: dict[str, Any]) -> list[dict[str, Any]]:
        """Those of each row."""
        return [of_row(infos, row) for row in range(self.num_envs)]
