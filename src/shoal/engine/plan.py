"""What a pool is made of."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field

from shoal.engine.backends import Terms
from shoal.engine.commands import Assignment, Factory
from shoal.engine.compare import SameSpace


@dataclass(frozen=True, slots=True)
class Policy:
    """What is to be done when something goes wrong."""

    on_failure: str = "raise"
    """A worker died or hung: "raise", "restart" or "replay"."""
    on_error: str = "raise"
    """An environment raised: "raise" or "restart"."""
    max_restarts: int = 10
    replay_limit_steps: int = 100_000
    max_worker_rss_mb: float | None = None


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What a pool is made of."""

    factories: Sequence[Factory]
    one_each: bool
    """Whether there is a factory for each environment, or a single one for all."""
    num_envs: int
    num_workers: int
    terms: Terms
    copy: bool = True
    strict_actions: bool = True
    """Whether actions must fit their space; if not, they reach the environments as they are."""
    infos_apart: bool = False
    """Whether infos are a list with a dict for each environment, not one of Gymnasium's dicts."""
    same_observation_space: SameSpace = operator.eq
    policy: Policy = field(default_factory=Policy)
    pages: int = 0
    """How many steps' observations the caller wants to have in one array; 0: it takes them as they
    come."""

    def share(self, worker: int) -> Assignment:
        """Its even share, in one block."""
        share = Assignment(worker, self.num_workers, self.num_envs, self.factories, self.one_each)
        return self.assign(worker, share.ids()) if self.one_each else share

    def assign(self, worker: int, env_ids: Sequence[int]) -> Assignment:
        """These very environments."""
        factories = [self.factories[i] for i in env_ids] if self.one_each else self.factories
        return Assignment(
            worker, self.num_workers, self.num_envs, factories, self.one_each, env_ids
        )
