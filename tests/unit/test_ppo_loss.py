"""PPO's loss against a slow transcription, and what is learnt from whom."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shoal.algos.numbers import bare  # noqa: E402
from shoal.algos.ppo.loss import distance, normalized, ppo_losses  # noqa: E402


def slow_losses(
    new: list[float],
    old: list[float],
    values: list[float],
    old_values: list[float],
    advantages: list[float],
    returns: list[float],
    clip: float,
    clip_values: bool,
) -> tuple[float, float, float, float]:
    policy = value = kl = clipped = 0.0
    for k in range(len(new)):
        ratio = math.exp(new[k] - old[k])
        near = min(max(ratio, 1 - clip), 1 + clip)
        policy -= min(ratio * advantages[k], near * advantages[k])
        error = (values[k] - returns[k]) ** 2
        if clip_values:
            moved = min(max(values[k] - old_values[k], -clip), clip)
            error = max(error, (old_values[k] + moved - returns[k]) ** 2)
        value += 0.5 * error
        kl += ratio - 1 - math.log(ratio)
        clipped += ratio != near
    count = len(new)
    return policy / count, value / count, kl / count, clipped / count


@pytest.mark.parametrize("kind", [torch.tensor, np.array])
@pytest.mark.parametrize("clip_values", [False, True])
def test_losses_are_those_of_the_paper(clip_values: bool, kind: Any) -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=40) for _ in range(6)]
    new, old, values, old_values, advantages, returns = (kind(one) for one in given)
    losses = ppo_losses(
        new,
        values,
        old_log_probs=old,
        old_values=old_values,
        advantages=advantages,
        returns=returns,
        weights=None,
        clip_range=0.2,
        clip_values=clip_values,
    )
    wanted = slow_losses(*(one.tolist() for one in given), 0.2, clip_values)  # type: ignore[arg-type]
    found = losses.policy, losses.value, *distance(losses.log_ratio, None, 0.2)
    assert [float(one) for one in found] == pytest.approx(wanted)


@pytest.mark.parametrize("clip_values", [False, True])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("kind", [torch.Tensor.detach, bare])
def test_slopes_are_those_that_autograd_finds(
    clip_values: bool, is_weighted: bool, kind: Any
) -> None:
    rng = np.random.default_rng(1)
    given = torch.tensor(rng.normal(scale=0.3, size=(6, 200)))
    new, old, values, old_values, advantages, returns = given
    new, values = new.detach().requires_grad_(), values.detach().requires_grad_()
    weights = (torch.arange(200) % 3 > 0).double() if is_weighted else None
    losses = ppo_losses(
        kind(new),
        kind(values),
        old_log_probs=kind(old),
        old_values=kind(old_values),
        advantages=kind(advantages),
        returns=kind(returns),
        weights=None if weights is None else kind(weights),
        clip_range=0.2,
        clip_values=clip_values,
    )
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    error = (values - returns).square()
    if clip_values:
        near = old_values + (values - old_values).clamp(-0.2, 0.2)
        error = torch.maximum(error, (near - returns).square())
    counts = torch.ones(200, dtype=torch.float64) if weights is None else weights
    loss = (counts * (0.5 * error - gain)).sum() / counts.sum()
    loss.backward()
    torch.testing.assert_close(torch.as_tensor(losses.push), new.grad)
    torch.testing.assert_close(torch.as_tensor(losses.pull), values.grad)
    assert 0 < int((losses.push == 0).sum()) < 150


def test_steps_of_no_weight_change_nothing() -> None:
    def losses(count: int, weights: object) -> list[float]:
        rng = np.random.default_rng(0)
        rows = torch.tensor(rng.normal(size=(6, 8)))[:, :count]
        found = ppo_losses(
            rows[0],
            rows[2],
            old_log_probs=rows[3],
            old_values=rows[2],
            advantages=normalized(rows[4], weights),  # type: ignore[arg-type]
            returns=rows[5],
            weights=weights,  # type: ignore[arg-type]
            clip_range=0.2,
            clip_values=False,
        )
        far = distance(found.log_ratio, weights, 0.2)  # type: ignore[arg-type]
        return [float(one) for one in (found.policy, found.value, *far)]

    some = torch.tensor([1.0] * 5 + [0.0] * 3, dtype=torch.float64)
    assert losses(8, some) == pytest.approx(losses(5, torch.ones(5, dtype=torch.float64)))


def test_advantages_of_many_batches_at_once_are_those_of_each() -> None:
    advantages = torch.tensor(np.random.default_rng(0).normal(3.0, 2.0, size=(5, 16)))
    some = (torch.arange(80).view(5, 16) % 3 > 0).double()
    for weights in (None, some):
        together = normalized(advantages, weights)
        for k in range(5):
            alone = normalized(advantages[k], None if weights is None else weights[k])
            torch.testing.assert_close(together[k], alone)
            counts = torch.ones(16) if weights is None else weights[k]
            mean = (together[k] * counts).sum() / counts.sum()
            assert float(mean) == pytest.approx(0.0, abs=1e-9)
