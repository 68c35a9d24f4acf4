"""PPO's loss against a slow transcription, and what is learnt from whom."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shoal.algos.heads import Judged  # noqa: E402
from shoal.algos.ppo.loss import normalized, ppo_losses  # noqa: E402


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


@pytest.mark.parametrize("clip_values", [False, True])
def test_losses_are_those_of_the_paper(clip_values: bool) -> None:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=40) for _ in range(6)]
    new, old, values, old_values, advantages, returns = (torch.tensor(one) for one in given)
    losses = ppo_losses(
        Judged(new, torch.full((40,), 0.7)),
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
    found = losses.policy, losses.value, losses.approx_kl, losses.clip_fraction
    assert [float(one) for one in found] == pytest.approx(wanted)
    assert float(losses.entropy) == pytest.approx(0.7)


def test_steps_of_no_weight_change_nothing() -> None:
    def losses(count: int, weights: object) -> list[float]:
        rng = np.random.default_rng(0)
        rows = torch.tensor(rng.normal(size=(6, 8)))[:, :count]
        found = ppo_losses(
            Judged(rows[0], rows[1]),
            rows[2],
            old_log_probs=rows[3],
            old_values=rows[2],
            advantages=normalized(rows[4], weights),  # type: ignore[arg-type]
            returns=rows[5],
            weights=weights,  # type: ignore[arg-type]
            clip_range=0.2,
            clip_values=False,
        )
        return [float(one) for one in found]

    some = torch.tensor([1.0] * 5 + [0.0] * 3, dtype=torch.float64)
    assert losses(8, some) == pytest.approx(losses(5, torch.ones(5, dtype=torch.float64)))
