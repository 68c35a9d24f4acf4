"""Company: the agents of several policies, and a learner for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shoal.algos.agent import Agent
from shoal.algos.ppo.config import PPOConfig
from shoal.algos.ppo.learner import PPO
from shoal.rollout.rollout import Rollouts


class Company(nn.Module):
    """Agents by the names of their policies."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        super().__init__()
        self._members = _Members(agents)

    @property
    def agents(self) -> dict[str, Agent]:
        return dict(self._members.named_children())  # type: ignore[arg-type]

    @property
    def version(self) -> int:
        """How often they were updated."""
        return max(one.version for one in self.agents.values())

    @version.setter
    def version(self, value: int) -> None:
        for one in self.agents.values():
            one.version = value

    @property
    def device(self) -> torch.device:
        return next(iter(self.agents.values())).device


class _Members(nn.Module):
    """Modules under any name; PyTorch's `ModuleDict` refuses those of its methods, such as `train`.

    Checkpoints know weights by these names, so they are kept as they are.
    """

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        super().__init__()
        self._modules.update(agents)


class Learners:
    """PPO for each policy, from its own part of what all went through."""

    def __init__(
        self, company: Company, config: PPOConfig, num_rows: Mapping[str, int], seed: int
    ) -> None:
        self._each = {
            name: PPO(agent, config, num_rows[name], seed) for name, agent in company.agents.items()
        }

    @property
    def config(self) -> PPOConfig:
        return next(iter(self._each.values())).config

    @config.setter
    def config(self, value: PPOConfig) -> None:
        for one in self._each.values():
            one.config = value

    def update(self, rollout: Rollouts) -> dict[str, float]:
        """Improve all that have acted; means over policies, and what is true of each of several."""
        told = {name: self._each[name].update(one) for name, one in rollout.parts.items()}
        names = next(iter(told.values())).keys()
        metrics = {name: float(np.mean([one[name] for one in told.values()])) for name in names}
        if len(self._each) > 1:
            for policy, one in told.items():
                metrics |= {_of(policy, name): value for name, value in one.items()}
        return metrics

    # --- to be kept -------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """That of each."""
        tensors: dict[str, Tensor] = {}
        about = {}
        for policy, learner in self._each.items():
            own, about[policy] = learner.state()
            tensors |= {f"{policy}.{name}": one for name, one in own.items()}
        return tensors, about

    def put_state(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        for policy, learner in self._each.items():
            start = f"{policy}."
            own = {
                name.removeprefix(start): one
                for name, one in tensors.items()
                if name.startswith(start)
            }
            learner.put_state(own, about[policy])


def _of(policy: str, name: str) -> str:
    """A metric of one policy: `train/loss` is `train/policy/loss`."""
    group, _, rest = name.partition("/")
    return f"{group}/{policy}/{rest}"
