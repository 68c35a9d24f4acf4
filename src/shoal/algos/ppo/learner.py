"""The learner: one update of an agent from one rollout, to be read with the paper beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.algos.agent import Agent
from shoal.algos.descent import Descent
from shoal.algos.heads import Judged
from shoal.algos.ppo.config import PPOConfig
from shoal.algos.ppo.loss import Losses, normalized, ppo_losses
from shoal.algos.rewards import RewardScale
from shoal.layout import Array
from shoal.rollout.returns import gae
from shoal.rollout.rollout import Rollout


class Material(NamedTuple):
    """A rollout as it is learnt from; all are `[time * num_envs, ...]`, time first."""

    leaves: list[Tensor]
    actions: Tensor
    masks: Tensor | None
    numbers: Tensor
    """Log-probabilities, values, advantages, returns and weights, `[time * num_envs, 5]`: in one
    tensor, because what is taken from it at random costs by the piece."""
    is_whole: bool
    """Whether every step is to be learnt from: then all weights are 1."""

    def at(self, rows: Tensor) -> Material:
        """Some of it."""
        masks = None if self.masks is None else self.masks[rows]
        leaves = [leaf[rows] for leaf in self.leaves]
        return Material(leaves, self.actions[rows], masks, self.numbers[rows], self.is_whole)


class PPO:
    """Learns from rollouts, one after the other."""

    def __init__(self, agent: Agent, config: PPOConfig, num_envs: int, seed: int) -> None:
        self.agent, self.config = agent, config
        self._random = torch.Generator().manual_seed(seed)
        self._rewards = RewardScale(num_envs, config.gamma) if config.normalize_rewards else None
        self._descent = Descent(agent.parameters(), config.max_grad_norm)

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Improve the agent; what that was like."""
        config, material = self.config, self._material(rollout)
        rate = self._rate(rollout.progress)
        told: list[Losses] = []
        norms: list[Tensor] = []
        num_epochs = 0
        for _ in range(config.n_epochs):
            before = len(told)
            for judged, values, batch in self._judged(material, rollout):
                losses = self._losses(judged, values, batch)
                norms.append(self._descent.step(self._total(losses), rate))
                told.append(Losses(*(one.detach() for one in losses)))
            num_epochs += 1
            if self._has_gone_far(told[before:]):
                break
        self.agent.see(material.leaves)
        self.agent.version += 1
        return _metrics(told, norms, material) | {
            "train/learning_rate": rate,
            "train/epochs": num_epochs,
        }

    def _has_gone_far(self, told: list[Losses]) -> bool:
        limit = self.config.target_kl
        return limit is not None and float(_mean_of(told, "approx_kl")) > limit

    # --- what is learnt from ----------------------------------------------------------------

    def _material(self, rollout: Rollout) -> Material:
        config, rewards = self.config, rollout.rewards
        if self._rewards is not None:
            rewards = self._rewards.scaled(rollout)
        advantages = gae(
            rewards,
            rollout.values,
            rollout.next_values,
            rollout.terminations,
            rollout.truncations,
            rollout.valid,
            gamma=config.gamma,
            gae_lambda=config.gae_lambda,
        )
        values, returns = rollout.values, advantages + rollout.values
        numbers = (rollout.log_probs, values, advantages, returns, rollout.valid)
        return Material(
            [self._flat(leaf) for leaf in rollout.observations],
            self._flat(rollout.actions),
            self._masks(rollout),
            self._flat(np.stack(numbers, -1, dtype=np.float32)),
            bool(rollout.valid.all()),
        )

    def _masks(self, rollout: Rollout) -> Tensor | None:
        if rollout.action_masks is None or not self.agent.head.takes_masks:
            return None
        return self._flat(rollout.action_masks)

    def _flat(self, array: Array) -> Tensor:
        flat = torch.from_numpy(array.reshape(-1, *array.shape[2:]))
        return flat.to(self.agent.device, non_blocking=True)

    # --- batches ----------------------------------------------------------------------------

    def _judged(
        self, material: Material, rollout: Rollout
    ) -> Iterator[tuple[Judged, Tensor, Material]]:
        """All of it, in random batches, with what the agent thinks of each by now."""
        if rollout.states is not None:
            yield from self._judged_sequences(material, rollout)
            return
        order = torch.randperm(len(material.actions), generator=self._random)
        for rows in order.to(self.agent.device).split(self.config.batch_size):
            batch = material.at(rows)
            yield *self.agent.judge(batch.leaves, batch.actions, batch.masks), batch

    def _judged_sequences(
        self, material: Material, rollout: Rollout
    ) -> Iterator[tuple[Judged, Tensor, Material]]:
        """The same for an agent that remembers: batches of pieces, each with what it knew then."""
        assert rollout.states is not None
        num_steps, num_envs = rollout.rewards.shape
        states, starts = self._flat(rollout.states), self._flat(rollout.starts)
        for first, length in pieces(num_steps, num_envs, self.config.sequence_length):
            later = torch.arange(length)[:, None] * num_envs
            order = torch.randperm(len(first), generator=self._random)
            for chosen in order.split(max(1, self.config.batch_size // length)):
                begin = first[chosen].to(self.agent.device)
                rows = begin + later.to(self.agent.device)  # [length, pieces]
                batch = material.at(rows.reshape(-1))
                judged = self.agent.judge_sequences(
                    batch.leaves, batch.actions, batch.masks, states[begin], starts[rows]
                )
                yield *judged, batch

    # --- one gradient -----------------------------------------------------------------------

    def _losses(self, judged: Judged, values: Tensor, batch: Material) -> Losses:
        log_probs, old_values, advantages, returns, valid = batch.numbers.unbind(-1)
        weights = None if batch.is_whole else valid
        if self.config.normalize_advantages:
            advantages = normalized(advantages, weights)
        return ppo_losses(
            judged,
            values,
            old_log_probs=log_probs,
            old_values=old_values,
            advantages=advantages,
            returns=returns,
            weights=weights,
            clip_range=self.config.clip_range,
            clip_values=self.config.clip_values,
        )

    def _total(self, losses: Losses) -> Tensor:
        config = self.config
        loss = losses.policy + config.value_coef * losses.value
        return loss - config.entropy_coef * losses.entropy if config.entropy_coef else loss

    def _rate(self, progress: float) -> float:
        rate = self.config.learning_rate
        is_falling = self.config.learning_rate_schedule == "linear"
        return rate * max(0.0, 1.0 - progress) if is_falling else rate

    # --- to be kept -------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything but the agent's weights: tensors, and what JSON can hold."""
        tensors = {"random": self._random.get_state(), **self._descent.state()}
        about = {} if self._rewards is None else {"rewards": self._rewards.state()}
        return tensors, about

    def put_state(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._random.set_state(tensors["random"])
        self._descent.put_state(tensors)
        if self._rewards is not None:
            self._rewards.put_state(about["rewards"])


def pieces(num_steps: int, num_envs: int, length: int) -> Iterator[tuple[Tensor, int]]:
    """Where pieces of so many steps of one environment begin, in rows; shorter ones come last."""
    whole = num_steps - num_steps % length
    rows = torch.arange(num_steps * num_envs).view(num_steps, num_envs)
    if whole:
        yield rows[:whole:length].reshape(-1), length
    if whole < num_steps:
        yield rows[whole], num_steps - whole


def _mean_of(told: list[Losses], name: str) -> Tensor:
    return torch.stack([getattr(one, name) for one in told]).mean()


def _metrics(told: list[Losses], norms: list[Tensor], material: Material) -> dict[str, float]:
    means = {name: float(_mean_of(told, name)) for name in Losses._fields}
    _, _, advantages, returns, _ = material.numbers.unbind(-1)
    spread, left = returns.var(), advantages.var()
    explained = float(1.0 - left / spread) if float(spread) > 0.0 else float("nan")
    return {
        "train/policy_loss": means["policy"],
        "train/value_loss": means["value"],
        "train/entropy": means["entropy"],
        "train/approx_kl": means["approx_kl"],
        "train/clip_fraction": means["clip_fraction"],
        "train/gradient_norm": float(torch.stack(norms).mean()),
        "train/explained_variance": explained,
    }
