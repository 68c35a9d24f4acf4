"""`ParallelEnv`: environments in worker processes, from a list of functions that make them."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.errors import ConfigError, shown
from shoal.vector.env import VectorEnv
from shoal.vector.make import Faults, as_mode, make_pool, make_terms
from shoal.vector.source import Factory, resolve


class ParallelEnv(VectorEnv):
    """What `shoal.make(env_fns, backend="process", autoreset="same_step")` returns, with `n_envs`.

    There are as many processes as cores at most, and each has its share of the environments.
    `start_method` is "forkserver", "spawn" or "fork"; None: what suits this system. `reset(seed=7)`
    gives environment i the seed 7 + i, and a list gives each its own. An environment whose episode
    ends begins the next one in the same step; its last observation is in `infos["final_obs"]`.
    """

    def __init__(self, env_fns: Iterable[Factory], start_method: str | None = None) -> None:
        given: object = env_fns
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigError(
                f"env_fns is {shown(given)}; expected a list of functions that make one "
                "environment each, such as [make_env] * 8."
            )
        source, faults = resolve(list(given)), Faults()
        terms = make_terms(source, "process", as_mode("same_step"), faults, None, start_method)
        count = len(source.factories)
        policy = faults.policy("restart")
        super().__init__(make_pool(source, "process", count, None, terms, policy=policy))

    @property
    def n_envs(self) -> int:
        """How many there are; the same as `num_envs`."""
        return self.num_envs
