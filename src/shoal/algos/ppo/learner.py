"""The learner: one update of an agent from one rollout, to be read with the paper beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.algos.agent import Agent, Opinion
from shoal.algos.descent import Descent
from shoal.algos.numbers import Numbers, bare, library
from shoal.algos.ppo.config import PPOConfig
from shoal.algos.ppo.loss import Mean, distance, normalized, ppo_losses
from shoal.algos.rewards import RewardScale
from shoal.layout import Array
from shoal.rollout.returns import gae
from shoal.rollout.rollout import Rollout
from shoal.rollout.streams import LEARNING, stream


class Material(NamedTuple):
    """A rollout as it is learnt from; leaves and actions are `[time * num_envs, ...]`."""

    leaves: list[Tensor]
    actions: Tensor
    masks: Tensor | None
    numbers: Tensor
    """Log-probabilities, values, advantages, returns and weights, `[5, time * num_envs]`: in one
    tensor, because what is taken from it costs by the piece."""
    is_whole: bool
    """Whether every step is to be learnt from: then all weights are 1."""

    def at(self, rows: Tensor) -> Material:
        """Some of it, in this order."""
        masks = None if self.masks is None else self.masks[rows]
        leaves = [leaf[rows] for leaf in self.leaves]
        return Material(leaves, self.actions[rows], masks, self.numbers[:, rows], self.is_whole)

    def split(self, size: int) -> Iterator[Material]:
        """All of it, piece by piece, where it lies."""
        leaves = zip(*(leaf.split(size) for leaf in self.leaves), strict=True)
        actions, numbers = self.actions.split(size), self.numbers.split(size, 1)
        masks = [None] * len(actions) if self.masks is None else self.masks.split(size)
        for seen, chosen, possible, told in zip(leaves, actions, masks, numbers, strict=True):
            yield Material(list(seen), chosen, possible, told, self.is_whole)

    def scale_advantages(self, size: int) -> None:
        """Have those of every `size` steps, one after the other, at mean 0 and variance 1."""
        _, _, advantages, _, weights = self.numbers
        whole = len(advantages) - len(advantages) % size
        for rows, shape in ((slice(whole), (-1, size)), (slice(whole, None), (1, -1))):
            part, counts = advantages[rows], weights[rows].view(shape)
            if len(part):
                part = part.view(shape)
                part.copy_(normalized(part, None if self.is_whole else counts))


class Told(NamedTuple):
    """What one gradient tells."""

    policy: Numbers
    value: Numbers
    entropy: Numbers | None
    log_ratio: Numbers
    weights: Numbers | None
    norm: Tensor


class PPO:
    """Learns from rollouts, one after the other."""

    def __init__(self, agent: Agent, config: PPOConfig, num_envs: int, seed: int) -> None:
        self.agent, self.config = agent, config
        self._random = stream(seed, LEARNING)
        self._rewards = RewardScale(num_envs, config.gamma) if config.normalize_rewards else None
        self._descent = Descent(agent.parameters(), config.max_grad_norm)

    def update(self, rollout: Rollout) -> dict[str, float]:
        """Improve the agent; what that was like."""
        config, material = self.config, self._material(rollout)
        prepared = self._prepared(material, rollout)
        rate = _at(config.learning_rate, config.learning_rate_schedule, rollout.progress)
        clip = _at(config.clip_range, config.clip_range_schedule, rollout.progress)
        told: list[Told] = []
        num_epochs = 0
        for _ in range(config.n_epochs):
            batches = enumerate(self._opinions(prepared, rollout))
            epoch = [self._learn(*one, rate, clip, is_first=not k) for k, one in batches]
            told += epoch
            num_epochs += 1
            if config.target_kl is not None and _moved(epoch, clip)[0] > config.target_kl:
                break
        self.agent.see(material.leaves)
        self.agent.version += 1
        return _metrics(told, clip, material) | {
            "train/learning_rate": rate,
            "train/clip_range": clip,
            "train/epochs": num_epochs,
        }

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
        material = Material(
            [self._flat(leaf) for leaf in rollout.observations],
            self._flat(rollout.actions),
            self._masks(rollout),
            self._put(np.stack([one.reshape(-1) for one in numbers], dtype=np.float32)),
            bool(rollout.valid.all()),
        )
        if material.is_whole or rollout.states is not None or not rollout.valid.any():
            return material
        counting = self._put(np.flatnonzero(rollout.valid))
        return material.at(counting)._replace(is_whole=True)

    def _masks(self, rollout: Rollout) -> Tensor | None:
        if rollout.action_masks is None or not self.agent.head.takes_masks:
            return None
        return self._flat(rollout.action_masks)

    def _flat(self, array: Array) -> Tensor:
        return self._put(array.reshape(-1, *array.shape[2:]))

    def _put(self, array: Array) -> Tensor:
        return torch.from_numpy(array).to(self.agent.device, non_blocking=True)

    # --- batches ----------------------------------------------------------------------------

    def _prepared(self, material: Material, rollout: Rollout) -> Material:
        """What every epoch begins with; if all of it is one batch, that is scaled once for all."""
        if rollout.states is not None or not self._is_one_batch(material):
            return material
        return self._scaled(material._replace(numbers=material.numbers.clone()))

    def _is_one_batch(self, material: Material) -> bool:
        return len(material.actions) <= self.config.batch_size

    def _opinions(self, material: Material, rollout: Rollout) -> Iterator[tuple[Material, Opinion]]:
        """All of it, in random batches, with what the agent thinks of each by now."""
        if rollout.states is not None:
            yield from self._opinions_of_sequences(material, rollout)
            return
        for batch in self._batches(material):
            yield batch, self.agent.judge(batch.leaves, batch.actions, batch.masks)

    def _batches(self, material: Material) -> Iterable[Material]:
        if self._is_one_batch(material):  # which has no order
            return [material]
        order = torch.randperm(len(material.actions), generator=self._random)
        shuffled = material.at(order.to(self.agent.device))
        return self._scaled(shuffled).split(self.config.batch_size)

    def _opinions_of_sequences(
        self, material: Material, rollout: Rollout
    ) -> Iterator[tuple[Material, Opinion]]:
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
                batch = self._scaled(material.at(rows.reshape(-1)), rows.numel())
                opinion = self.agent.judge_sequences(
                    batch.leaves, batch.actions, batch.masks, states[begin], starts[rows]
                )
                yield batch, opinion

    def _scaled(self, material: Material, size: int | None = None) -> Material:
        """With the advantages of each batch, one after the other, at the same scale."""
        if self.config.normalize_advantages:
            material.scale_advantages(size or self.config.batch_size)
        return material

    # --- one gradient -----------------------------------------------------------------------

    def _learn(
        self, batch: Material, opinion: Opinion, rate: float, clip: float, is_first: bool
    ) -> Told:
        config, judged = self.config, opinion.judged
        log_probs, old_values, advantages, returns, valid = bare(batch.numbers)
        weights = None if batch.is_whole else valid
        losses = ppo_losses(
            judged.log_probs,
            opinion.values,
            old_log_probs=log_probs,
            old_values=old_values,
            advantages=advantages,
            returns=returns,
            weights=weights,
            clip_range=clip,
            clip_values=config.clip_values,
        )
        entropy, spread, mean = None, None, Mean(weights)
        if config.entropy_coef or is_first:  # where it does not count, one of an epoch will do
            entropy = mean(judged.entropy())
        if config.entropy_coef:
            spread = mean.part(0.0 * losses.push - config.entropy_coef)
        self._descent.begin()
        self.agent.go_back(opinion, losses.push, spread, config.value_coef * losses.pull)
        norm = self._descent.step(rate)
        return Told(losses.policy, losses.value, entropy, losses.log_ratio, weights, norm)

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


def _at(value: float, schedule: str, progress: float) -> float:
    """What has become of it by now."""
    return value * max(0.0, 1.0 - progress) if schedule == "linear" else value


def _moved(told: list[Told], clip: float) -> tuple[float, float]:
    """How far that has moved the policy, and how much of it was clipped."""
    ratios = _joined(one.log_ratio for one in told)
    weights = [one.weights for one in told if one.weights is not None]
    kl, clipped = distance(ratios, _joined(weights) if weights else None, clip)
    return float(kl), float(clipped)


def _metrics(told: list[Told], clip: float, material: Material) -> dict[str, float]:
    _, _, advantages, returns, _ = material.numbers
    spread, left = returns.var(), advantages.var()
    explained = float(1.0 - left / spread) if float(spread) > 0.0 else float("nan")
    kl, clipped = _moved(told, clip)
    return {
        "train/policy_loss": _mean(one.policy for one in told),
        "train/value_loss": _mean(one.value for one in told),
        "train/entropy": _mean(one.entropy for one in told if one.entropy is not None),
        "train/approx_kl": kl,
        "train/clip_fraction": clipped,
        "train/gradient_norm": _mean(one.norm for one in told),
        "train/explained_variance": explained,
    }


def _joined(each: Iterable[Numbers]) -> Numbers:
    first, *others = each
    return library(first).concatenate([first, *others])


def _mean(each: Iterable[Numbers]) -> float:
    first, *others = each
    return float(library(first).stack([first, *others]).mean())
