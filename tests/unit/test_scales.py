"""Running scales of observations and rewards, against all that was seen, kept and gone through."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shoal.algos.normal import Normal  # noqa: E402
from shoal.algos.rewards import RewardScale  # noqa: E402
from shoal.layout import Array  # noqa: E402
from shoal.rollout.rollout import Rollout  # noqa: E402

GAMMA = 0.9


def batches(shape: tuple[int, ...]) -> list[Array]:
    """Of several sizes, each from somewhere else."""
    random = np.random.default_rng(3)
    sizes, centres, widths = (1, 7, 64, 2), (0.0, -3.0, 40.0, 5.0), (1.0, 0.1, 9.0, 2.0)
    return [
        random.normal(centre, width, (size, *shape)).astype(np.float32)
        for size, centre, width in zip(sizes, centres, widths, strict=True)
    ]


@pytest.mark.parametrize("shape", [(3,), (2, 4)])
def test_observations_are_scaled_by_all_that_were_seen(shape: tuple[int, ...]) -> None:
    normal, seen = Normal(shape), np.empty((0, *shape))
    for batch in batches(shape):
        normal.see(torch.from_numpy(batch))
        seen = np.concatenate([seen, batch])
        np.testing.assert_allclose(normal.mean.numpy(), seen.mean(0), atol=1e-6)
        np.testing.assert_allclose(normal.variance.numpy(), seen.var(0), rtol=1e-5, atol=1e-9)
        if len(seen) > 1:
            expected = np.clip((batch - seen.mean(0)) / np.sqrt(seen.var(0) + 1e-8), -10.0, 10.0)
            found = normal(torch.from_numpy(batch)).numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_where_there_is_no_float64_what_was_seen_stays_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.algos.normal._WITHOUT_DOUBLES", ("meta",), raising=False)
    normal, plain = Normal((3,)).to("meta"), Normal((3,))
    kinds = {(one.device.type, one.dtype) for one in normal.buffers()}
    assert kinds == {("cpu", torch.float64), ("meta", torch.float32)}
    for batch in batches((3,)):
        for one in (normal, plain):
            one.see(torch.from_numpy(batch))
    assert torch.equal(normal.mean, plain.mean)
    assert torch.equal(normal.variance, plain.variance)
    assert normal(torch.ones(2, 3, device="meta")).shape == (2, 3)
    normal.load_state_dict(plain.state_dict())
    assert normal.count == plain.count


def test_observations_stay_as_they_are_before_any_was_seen() -> None:
    values = torch.tensor([[0.5, -2.0]])
    assert torch.equal(Normal((2,))(values), values)


def test_an_observation_far_outside_is_let_through_up_to_ten_deviations() -> None:
    normal = Normal((1,))
    normal.see(torch.tensor([[-1.0], [1.0]]))
    assert normal(torch.tensor([[1e6], [-1e6], [4.0]])).flatten().tolist() == pytest.approx(
        [10.0, -10.0, 4.0]
    )


def test_what_was_seen_of_observations_is_kept_with_the_weights() -> None:
    normal, other = Normal((3,)), Normal((3,))
    first, second, *_ = batches((3,))[1:]
    normal.see(torch.from_numpy(first))
    other.load_state_dict(normal.state_dict())
    values = torch.from_numpy(second)
    assert torch.equal(other(values), normal(values))
    for one in (normal, other):
        one.see(values)
    assert torch.equal(other(values), normal(values))


def rollout(seed: int, scale: float = 1.0) -> Rollout:
    """Of 20 steps in 3 environments, in which episodes end in both ways."""
    random = np.random.default_rng(seed)
    page = np.zeros((20, 3), np.float32)
    return Rollout(
        observations=(page,),
        actions=page,
        action_masks=None,
        log_probs=page,
        values=page,
        next_values=page,
        states=None,
        starts=page,
        rewards=(scale * random.normal(1.0, 2.0, (20, 3))).astype(np.float32),
        terminations=random.random((20, 3)) < 0.1,
        truncations=random.random((20, 3)) < 0.1,
        valid=np.ones(page.shape, np.bool_),
        step=0,
        version=0,
        progress=0.0,
        facts={},
    )


class Slow:
    """All discounted returns, one environment and one step after the other."""

    def __init__(self) -> None:
        self.running, self.seen = [0.0] * 3, []  # type: tuple[list[float], list[float]]

    def scaled(self, rollout: Rollout) -> Array:
        for t in range(20):
            for env_id in range(3):
                self.running[env_id] = GAMMA * self.running[env_id] + rollout.rewards[t, env_id]
                self.seen.append(self.running[env_id])
                if rollout.terminations[t, env_id] or rollout.truncations[t, env_id]:
                    self.running[env_id] = 0.0
        return np.clip(rollout.rewards / np.std(self.seen), -10.0, 10.0)


def test_rewards_are_scaled_by_the_returns_of_all_that_was_seen() -> None:
    scale, slow = RewardScale(3, GAMMA), Slow()
    for seed, size in enumerate((1.0, 1.0, 50.0, 0.01)):
        one = rollout(seed, size)
        np.testing.assert_allclose(scale.scaled(one), slow.scaled(one), rtol=1e-5, atol=1e-7)


def test_a_reward_far_outside_counts_for_ten() -> None:
    scale, one = RewardScale(3, GAMMA), rollout(20)
    for seed in range(20):
        scale.scaled(rollout(seed))
    one.rewards[7, 1] = 1e4
    found = scale.scaled(one)
    assert found[7, 1] == 10.0
    one.rewards[7, 1] = -1e4
    assert scale.scaled(one)[7, 1] == -10.0


def test_what_json_holds_of_a_scale_is_all_of_it() -> None:
    scale, other = RewardScale(3, GAMMA), RewardScale(3, GAMMA)
    scale.scaled(rollout(0))
    other.put_state(json.loads(json.dumps(scale.state())))
    assert np.array_equal(other.scaled(rollout(1)), scale.scaled(rollout(1)))
