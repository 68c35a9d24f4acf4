"""PPO's loss, term by term: what the policy that acted did, against what the policy thinks now."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shoal.algos.heads import Judged


class Losses(NamedTuple):
    """Means over a batch; the last two only tell."""

    policy: Tensor
    value: Tensor
    entropy: Tensor
    approx_kl: Tensor
    clip_fraction: Tensor


def ppo_losses(
    judged: Judged,
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
    """Equation 7 of the paper, and what goes with it. All are `[batch]`.

    `weights` are 0 for steps that are not to be learnt from; None: all are 1.

        ratio   = pi(a) / pi_old(a)
        policy  = -mean(min(ratio * A, clip(ratio, 1 - c, 1 + c) * A))
        value   = mean((V - R)^2) / 2
        kl      ~ mean(ratio - 1 - log ratio)
    """
    log_ratio = judged.log_probs - old_log_probs
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    error = (values - returns).square()
    if clip_values:
        near = old_values + (values - old_values).clamp(-clip_range, clip_range)
        error = torch.maximum(error, (near - returns).square())
    with torch.no_grad():
        kl = ratio - 1.0 - log_ratio
        is_clipped = (ratio != clipped).float()
    mean = _Mean(weights)
    return Losses(
        policy=-mean(gain),
        value=0.5 * mean(error),
        entropy=mean(judged.entropy),
        approx_kl=mean(kl),
        clip_fraction=mean(is_clipped),
    )


class _Mean:
    """A mean over those that count."""

    def __init__(self, weights: Tensor | None) -> None:
        self._weights = None if weights is None else weights / weights.sum().clamp(min=1.0)

    def __call__(self, each: Tensor) -> Tensor:
        return each.mean() if self._weights is None else (each * self._weights).sum()


def normalized(advantages: Tensor, weights: Tensor | None) -> Tensor:
    """Mean 0 and variance 1 among those that count; a single one is left as it is."""
    if len(advantages) < 2:
        return advantages
    if weights is None:
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    mean = _Mean(weights)
    centred = advantages - mean(advantages)
    return centred / (mean(centred.square()).sqrt() + 1e-8)
