"""PPO's loss, term by term: what the policy that acted did, against what the policy thinks now."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Losses(NamedTuple):
    """What is to be made small, and where that is downhill."""

    policy: Tensor
    value: Tensor
    push: Tensor
    """What the policy's loss changes by with the log-probability of each action."""
    pull: Tensor
    """What the value's loss changes by with each value."""
    log_ratio: Tensor
    """Of each action: how much more probable it has become."""


@torch.no_grad()
def ppo_losses(
    log_probs: Tensor,
    values: Tensor,
    *,
    old_log_probs: Tensor,
    old_values: Tensor,
    advantages: Tensor,
    returns: Tensor,
    weights: Tensor | None,
    clip_range: float,
    clip_values: bool,
) -> Losses:
    """Equation 7 of the paper, and what goes with it. All are `[batch]`, the losses are means.

    `weights` are 0 for steps that are not to be learnt from; None: all are 1.

        ratio   = pi(a) / pi_old(a)
        policy  = -mean(min(ratio * A, clip(ratio, 1 - c, 1 + c) * A))
        value   = mean((V - R)^2) / 2

    Their derivatives are written out: an action that has gone far enough is pushed no further,
    and d ratio / d log pi = ratio. By autograd each of these operations would cost as much again.
    """
    log_ratio = log_probs - old_log_probs
    ratio = log_ratio.exp()
    free = ratio * advantages
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range) * advantages
    miss = values - returns
    error = miss.square()
    if clip_values:
        moved = values - old_values
        near_error = (old_values + moved.clamp(-clip_range, clip_range) - returns).square()
        miss = torch.where((moved.abs() <= clip_range) | (error >= near_error), miss, 0.0)
        error = torch.maximum(error, near_error)
    mean = Mean(weights)
    return Losses(
        policy=-mean(torch.minimum(free, clipped)),
        value=0.5 * mean(error),
        push=mean.part(torch.where(free <= clipped, -free, 0.0)),
        pull=mean.part(miss),
        log_ratio=log_ratio,
    )


def distance(log_ratio: Tensor, weights: Tensor | None, clip_range: float) -> tuple[Tensor, Tensor]:
    """How far a policy is from the one that acted: about its KL divergence, and what was clipped.

    kl ~ mean(ratio - 1 - log ratio)
    """
    ratio, mean = log_ratio.exp(), Mean(weights)
    is_clipped = (ratio < 1.0 - clip_range) | (ratio > 1.0 + clip_range)
    return mean(ratio - 1.0 - log_ratio), mean(is_clipped.float())


class Mean:
    """A mean over those that count."""

    def __init__(self, weights: Tensor | None) -> None:
        self._weights = None if weights is None else weights / weights.sum().clamp(min=1.0)

    def __call__(self, each: Tensor) -> Tensor:
        return each.mean() if self._weights is None else (each * self._weights).sum()

    def part(self, each: Tensor) -> Tensor:
        """What each contributes."""
        return each / len(each) if self._weights is None else each * self._weights


def normalized(advantages: Tensor, weights: Tensor | None) -> Tensor:
    """Mean 0 and variance 1 among those of a batch, `[..., batch]`, that count.

    A single one is left as it is.
    """
    if advantages.shape[-1] < 2:
        return advantages
    if weights is None:
        spread, mean = torch.std_mean(advantages, -1, keepdim=True)
        return (advantages - mean) / (spread + 1e-8)
    shares = weights / weights.sum(-1, keepdim=True).clamp(min=1.0)
    centred = advantages - (advantages * shares).sum(-1, keepdim=True)
    return centred / ((centred.square() * shares).sum(-1, keepdim=True).sqrt() + 1e-8)
