"""What every vector environment of several agents has from the one below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from shoal.engine.batch import Batch
from shoal.engine.memento import Memento
from shoal.seeding import Seed
from shoal.vector.agents.cast import CAST, OURS, Cast
from shoal.vector.env import EnvIds, Options, VectorEnv

Self = TypeVar("Self", bound="Delegate")


class Delegate:
    """Environments of several agents, on an engine that knows nothing of agents.

    `below` is that engine's own presentation: each environment of it is a whole team.
    """

    def __init__(self, below: VectorEnv) -> None:
        self.below = below
        self.metadata = {name: one for name, one in below.metadata.items() if name not in OURS}
        self.render_mode = below.render_mode

    @property
    def num_envs(self) -> int:
        return self.below.num_envs

    def _stepped(self, actions: Any) -> Batch:
        """A step of all, in the form of what comes from some."""
        observations, rewards, terminations, truncations, infos = self.below.step(actions)
        ids = np.arange(self.num_envs)
        return Batch(observations, rewards, terminations, truncations, infos, ids)

    def set_next_reset(
        self,
        env_ids: Iterable[int],
        seeds: int | Sequence[Seed] | None = None,
        options: Options = None,
    ) -> None:
        """What the next automatic reset of these environments uses, once."""
        self.below.set_next_reset(env_ids, seeds, options)

    @property
    def num_sent(self) -> int:
        """How many environments were sent and not received yet."""
        return self.below.num_sent

    def branch(self, env_id: int, into_ids: Iterable[int]) -> None:
        """Make other environments continue from the exact state of this one."""
        self.below.branch(env_id, into_ids)

    def mementos(self) -> list[Memento]:
        """Where every environment stands, for others that `go_on` from there."""
        return self.below.mementos()

    def go_on(self, mementos: Sequence[Memento]) -> list[int]:
        """Bring environments that were never reset to where others stood."""
        return self.below.go_on(mementos)

    def call(self, name: str, *args: Any, env_ids: EnvIds = None, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute; one result each."""
        return self.below.call(name, *args, env_ids=env_ids, **kwargs)

    def get_attr(self, name: str, env_ids: EnvIds = None) -> tuple[Any, ...]:
        """An attribute of each environment."""
        return self.below.get_attr(name, env_ids)

    def set_attr(self, name: str, values: Any, env_ids: EnvIds = None) -> None:
        """Set an attribute: a list or tuple gives one value each, anything else is for all."""
        self.below.set_attr(name, values, env_ids)

    def stats(self) -> dict[str, Any]:
        """What the engine knows of itself; returns of episodes are those of all agents together."""
        return self.below.stats()

    def render(self) -> tuple[Any, ...]:
        """One frame per environment."""
        return self.below.render()

    def close(self, timeout_s: float | None = None) -> None:
        """Close every environment and end the workers."""
        self.below.close(timeout_s=timeout_s)

    @property
    def closed(self) -> bool:
        return self.below.closed

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.below.__exit__(*error)


class Known(Delegate):
    """The same for agents who are known beforehand."""

    def __init__(self, below: VectorEnv) -> None:
        super().__init__(below)
        self.cast: Cast = below.metadata[CAST]
        self.possible_agents: list[Any] = list(self.cast.names)

    @property
    def num_agents(self) -> int:
        """How many there are in each environment, living or not."""
        return len(self.cast)

    def single_observation_space(self, agent: Any) -> Any:
        """What an agent of one environment sees."""
        return self.cast.observation_spaces[self.cast.number[agent]]

    def single_action_space(self, agent: Any) -> Any:
        """What an agent of one environment does."""
        return self.cast.action_spaces[self.cast.number[agent]]
