"""A drop-in for AgileRL's vector environment of teams: change one import line.

    from shoal.vector.agilerl import AsyncPettingZooVecEnv

Constructor, attributes, states and errors are those of AgileRL 2.58; where AgileRL is installed,
it is one of AgileRL's own `PettingZooVecEnv`s. Underneath is this engine: many environments share
a worker, nothing is built only to be looked at, and what an episode ended with is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, TypeVar

import numpy as np
from gymnasium import Space
from gymnasium.vector.async_vector_env import AsyncState
from gymnasium.vector.utils import batch_space

from shoal.engine.batch import Batch
from shoal.engine.commands import Factory
from shoal.engine.pool import Pool
from shoal.layout import Array
from shoal.seeding import Seed
from shoal.vector.agents.cast import CAST, OURS, Cast
from shoal.vector.agents.orders import Orders
from shoal.vector.agents.placeholders import ended_with, fill_flags, fill_nan
from shoal.vector.agents.reading import ByAgent, Reading
from shoal.vector.agents.skipping import as_skipping_team
from shoal.vector.checks import choose
from shoal.vector.env import Options, VectorEnv, reset_plan
from shoal.vector.make import Faults, make
from shoal.vector.waiting import Waiting, let_out

try:
    from agilerl.vector.pz_vec_env import PettingZooVecEnv
except ImportError:  # then nobody asks whether it is one
    PettingZooVecEnv = object

Spaces = dict[Any, Space[Any]]
Infos = dict[str, Any]
StepResults = tuple[ByAgent, ByAgent, ByAgent, ByAgent, Infos]
Self = TypeVar("Self", bound="AsyncPettingZooVecEnv")


class AsyncPettingZooVecEnv(PettingZooVecEnv):  # type: ignore[misc]
    """AgileRL's `AsyncPettingZooVecEnv`, on the process backend. `context` is the start method.

    Everything is by agent, with a row for each environment. When nobody is left in an environment,
    it is reset in the same step: the observations are those of the new episode, rewards and flags
    those of the old one, and `infos[agent]` has `final_obs` and `final_info`, with the masks
    `_final_obs` and `_final_info`. There are three more masks in `infos[agent]`:

    - `alive`: it may act in the next step;
    - `observed`: this row of its observations is its own;
    - `rewarded`: this row of its rewards and flags is its own (after `step`).

    `absent` says what stands in rows of an agent that is not there. `"zeros"`: zeros, and an agent
    that is gone is terminated, so that in the last step of an episode all agents have ended; flags
    are bool and integers stay integers. `"nan"`: NaN in observations (where these are floats),
    rewards and flags, which is what AgileRL's `AsyncAgentsWrapper` looks for.

    With `copy=False` observations are views, valid until the second step after. All other keywords
    are those of `shoal.make`.
    """

    def __init__(
        self,
        env_fns: Sequence[Factory],
        copy: bool = True,
        context: Literal["spawn", "fork", "forkserver"] | None = None,
        *,
        absent: Literal["zeros", "nan"] = "zeros",
        backend: str = "process",
        num_workers: int | None = None,
        step_timeout_s: float | None = None,
        on_failure: str = "raise",
        faults: Faults | None = None,
    ) -> None:
        # AgileRL's own constructor only sets attributes, and is not there for everyone.
        self.env_fns, self.copy = env_fns, copy
        self._wants_nan = choose("absent", absent, ("zeros", "nan")) == "nan"
        self._below: VectorEnv = let_out(
            make,
            list(env_fns),
            wrappers=[as_skipping_team],
            autoreset="same_step",
            copy=copy,
            start_method=context,
            backend=backend,
            num_workers=num_workers,
            step_timeout_s=step_timeout_s,
            on_failure=on_failure,
            faults=faults,
        )
        self._pool: Pool = self._below._pool
        self._waiting = Waiting(self._pool, type(self).__name__)
        self._describe(self._below.metadata[CAST])
        self._observations: ByAgent = {}

    def _describe(self, cast: Cast) -> None:
        self._cast, self.num_envs = cast, self._below.num_envs
        self.possible_agents, self.num_agents = list(cast.names), len(cast)
        self.agents = self.possible_agents
        ours = OURS | {"autoreset_mode"}
        self.metadata = {k: v for k, v in self._below.metadata.items() if k not in ours}
        self.render_mode: str | None = self._below.render_mode
        self._reading, self._orders = Reading(cast, self.num_envs), Orders(cast, self.num_envs)
        each = zip(cast.names, cast.observation_spaces, strict=True)
        self._single_observation_spaces: Spaces = dict(each)
        self._single_action_spaces: Spaces = dict(zip(cast.names, cast.action_spaces, strict=True))
        self._observation_spaces = self._batched(self._single_observation_spaces)
        self._action_spaces = self._batched(self._single_action_spaces)

    def _batched(self, spaces: Spaces) -> Spaces:
        return {name: batch_space(space, self.num_envs) for name, space in spaces.items()}

    # --- spaces -----------------------------------------------------------------------------

    def observation_space(self, agent: Any) -> Space[Any]:
        """What an agent sees in all environments."""
        return self._observation_spaces[agent]

    def action_space(self, agent: Any) -> Space[Any]:
        """What an agent does in all environments."""
        return self._action_spaces[agent]

    def single_observation_space(self, agent: Any) -> Space[Any]:
        """What an agent of one environment sees."""
        return self._single_observation_spaces[agent]

    def single_action_space(self, agent: Any) -> Space[Any]:
        """What an agent of one environment does."""
        return self._single_action_spaces[agent]

    @property
    def unwrapped(self: Self) -> Self:
        return self

    # --- resets and steps -------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[Seed] | None = None, options: Options = None
    ) -> tuple[ByAgent, Infos]:
        """Reset all environments; env i gets `seed + i`, or the i-th of a list.

        `options` may also be a list with one dict (or None) for each environment.
        """
        self.reset_async(seed, options)
        return self.reset_wait()

    def reset_async(
        self, seed: int | Sequence[Seed] | None = None, options: Options = None
    ) -> None:
        """Start a reset; `reset_wait` gives its result."""
        self._waiting.check_open()
        plan = reset_plan(seed, options, self.num_envs)
        self._waiting.check_free("reset_async", end="")
        self._waiting.begin(AsyncState.WAITING_RESET, self._pool.start_reset, plan)

    def reset_wait(self, timeout: float | None = None) -> tuple[ByAgent, Infos]:
        self._waiting.finish(AsyncState.WAITING_RESET, timeout)
        told, infos = self._pool.reset_results()
        observations = self._seen(self._reading.see(told))
        self._add_masks(infos, alive=self._reading.alive, observed=self._reading.observed)
        return observations, infos

    def step(self, actions: Mapping[Any, Any], *_: Any, **__: Any) -> StepResults:
        """One step, from arrays or tensors `[num_envs, ...]` by agent.

        An agent that is left out, or a row of NaN, does nothing: its environment is not told of an
        action of it. What is given for agents that are not there is not looked at.
        """
        self._waiting.check_open()
        self._waiting.check_free("step_async")
        return self._results(*self._waiting.run(self._below.step, self._orders.of_agents(actions)))

    def step_async(self, actions: Sequence[Mapping[Any, Any]] | Mapping[Any, Any]) -> None:
        """Start a step, from a dict by agent for each environment; `step_wait` gives its result."""
        self._waiting.check_open()
        self._waiting.check_free("step_async")
        is_by_agent = isinstance(actions, Mapping)
        orders = self._orders.of_agents if is_by_agent else self._orders.of_envs
        given = orders(actions)  # type: ignore[arg-type]
        self._waiting.begin(AsyncState.WAITING_STEP, self._pool.start_step, given)

    def step_wait(self, timeout: float | None = None) -> StepResults:
        self._waiting.finish(AsyncState.WAITING_STEP, timeout)
        return self._results(*self._pool.step_results())

    def get_observations(self) -> ByAgent:
        """The latest observations."""
        return deepcopy(self._observations) if self.copy else self._observations

    # --- calls ------------------------------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute; one result each."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Start a call; `call_wait` gives its results."""
        self._waiting.check_open()
        self._waiting.check_free("call_async")
        every, start = range(self.num_envs), self._pool.start_call
        self._waiting.begin(AsyncState.WAITING_CALL, start, name, args, kwargs, every)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        results = self._waiting.finish(AsyncState.WAITING_CALL, timeout)
        return tuple(results[i] for i in range(self.num_envs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute: a list or tuple gives one value each, anything else is for all."""
        self._waiting.check_open()
        self._waiting.check_free("set_attr")
        self._waiting.run(self._below.set_attr, name, values)

    def render(self) -> tuple[Any, ...]:
        """One frame per environment."""
        return self.call("render")

    def stats(self) -> dict[str, Any]:
        """What the engine knows of itself, as `shoal.VectorEnv.stats` has it."""
        return self._below.stats()

    def close(self, **how: Any) -> None:
        """Close every environment and end the workers; twice is safe. See `close_extras`."""
        if not self.closed:
            self.close_extras(**how)

    def close_extras(
        self, *, timeout: float | None = None, terminate: bool = False, **_: Any
    ) -> None:
        """Close; with a call pending, wait for it at most `timeout` (not at all to terminate)."""
        self._waiting.close(timeout, terminate)

    @property
    def closed(self) -> bool:
        return self._pool.closed

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._below.__exit__(*error)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_envs={self.num_envs})"

    # --- inside -----------------------------------------------------------------------------

    def _results(
        self, told: Any, rewards: Array, terminations: Array, truncations: Array, infos: Infos
    ) -> StepResults:
        ids = np.arange(self.num_envs)
        whole = Batch(told, rewards, terminations, truncations, infos, ids)
        batch, reading = self._reading.results(whole), self._reading
        fill_flags(batch, reading, terminations | truncations, wants_nan=self._wants_nan)
        masks = {name: getattr(reading, name) for name in ("alive", "observed", "rewarded")}
        self._add_masks(infos, **masks)
        ended_with(infos, self._cast, reading.rewarded)
        return self._seen(batch.observations), *batch[1:4], infos

    def _seen(self, observations: ByAgent) -> ByAgent:
        """Observations as they are handed out."""
        if self._wants_nan and not self._reading.observed.all():
            absent = self._reading.columns(~self._reading.observed)
            observations = {name: fill_nan(one, absent[name]) for name, one in observations.items()}
        self._observations = observations
        return observations

    def _add_masks(self, infos: Infos, **masks: Array) -> None:
        own = {key: mask.copy() for key, mask in masks.items()}  # ours are written again
        for k, name in enumerate(self._cast.names):
            infos.setdefault(name, {}).update({key: mask[:, k] for key, mask in own.items()})
            infos[f"_{name}"] = np.ones(self.num_envs, np.bool_)  # these are told everywhere
