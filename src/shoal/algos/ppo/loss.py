"""PPO's loss, term by term: what the policy that acted did, against what the policy thinks now."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shoal.algos.numbers import Numbers, library


class Losses(NamedTuple):
    """What is to be made small, and where that is downhill."""

    policy: Numbers
    value: Numbers
    push: Numbers
    """What the policy's loss changes by with the log-probability of each action."""
    pull: Numbers
    """What the value's loss changes by with each value."""
    log_ratio: Numbers
    """Of each action: how much more probable it has become."""


def ppo_losses(
    log_probs: Numbers,
    values: Numbers,
    *,
    old_log_probs: Numbers,
    old_values: Numbers,
    advantages: Numbers,
    returns: Numbers,
    weights: Numbers | None,
    clip_range: float,
    clip_values: bool,
) -> Losses:
    """Equation 7 of the paper, and what goes with it. All are `[batch]`, the losses are means.

    `weights` are 0 for steps that are not to be learnt from; None: all are 1.

        ratio   = pi(a) / pi_old(a)
        policy  = -mean(min(ratio * A, clip(ratio, 1 - c, 1 + c) * A))
        value   = mean((V - R)^2) / 2

    Their derivatives are written out: an action that has gone far enough is pushed no further,
    and d ratio / d log pi = ratio.
    """
    xp, log_ratio = library(log_probs), log_probs - old_log_probs
    ratio = xp.exp(log_ratio)
    free = ratio * advantages
    clipped = ratio.clip(1.0 - clip_range, 1.0 + clip_range) * advantages
    miss = values - returns
    error = miss * miss
    if clip_values:
        moved = values - old_values
        near_miss = old_values + moved.clip(-clip_range, clip_range) - returns
        near_error = near_miss * near_miss
        miss = xp.where((abs(moved) <= clip_range) | (error >= near_error), miss, 0.0)
        error = xp.maximum(error, near_error)
    mean = Mean(weights)
    return Losses(
        policy=-mean(xp.minimum(free, clipped)),
        value=0.5 * mean(error),
        push=mean.part(xp.where(free <= clipped, -free, 0.0)),
        pull=mean.part(miss),
        log_ratio=log_ratio,
    )


def distance(
    log_ratio: Numbers, weights: Numbers | None, clip_range: float
) -> tuple[Numbers, Numbers]:
    """How far a policy is from the one that acted: about its KL divergence, and what was clipped.

    kl ~ mean(ratio - 1 - log ratio)
    """
    ratio, mean = library(log_ratio).exp(log_ratio), Mean(weights)
    is_clipped = (ratio < 1.0 - clip_range) | (ratio > 1.0 + clip_range)
    return mean(ratio - 1.0 - log_ratio), mean(is_clipped)


class Mean:
    """A mean over those that count."""

    def __init__(self, weights: Numbers | None) -> None:
        self._weights = None if weights is None else weights / weights.sum().clip(min=1.0)

    def __call__(self, each: Numbers) -> Numbers:
        return self.part(each).sum()

    def part(self, each: Numbers) -> Numbers:
        """What each contributes."""
        return each * (1.0 / len(each)) if self._weights is None else each * self._weights


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
