"""Heads against PyTorch's own distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gymnasium import spaces  # noqa: E402
from torch import distributions as D  # noqa: E402, N812

from shoal.algos.heads import Judged, TanhGaussian, head_of  # noqa: E402
from shoal.algos.numbers import bare  # noqa: E402
from shoal.errors import ConfigError  # noqa: E402

SPACES: list[spaces.Space[Any]] = [
    spaces.Discrete(5, start=2),
    spaces.MultiDiscrete([2, 3, 4], start=[1, 0, -1]),
    spaces.MultiDiscrete([[2, 3], [4, 2]]),
    spaces.MultiBinary(4),
    spaces.Box(-1.0, 2.0, (3,)),
    spaces.Box(-1.0, 2.0, (2, 2), np.float64),
]


KINDS = [torch.Tensor.detach, bare]
"""As on a GPU, and as on a CPU."""


def drawn(head: Any, parameters: Any, masks: Any, seed: int, kind: Any = bare) -> Any:
    noise = head.noise(len(parameters), torch.Generator().manual_seed(seed))
    masks = None if masks is None else kind(masks)
    return [torch.as_tensor(one) for one in head.draw(kind(parameters), masks, kind(noise))]


def judged(head: Any, parameters: Any, actions: Any, masks: Any, kind: Any = bare) -> Judged:
    masks = None if masks is None else kind(masks)
    found = head.judge(kind(parameters), kind(actions), masks)

    def slope(push: Any, spread: Any) -> Any:
        given = found.slope(kind(push), None if spread is None else kind(spread))
        return torch.as_tensor(given)

    entropy = found.entropy()
    entropy = entropy if isinstance(entropy, torch.Tensor) else torch.tensor(entropy)
    return Judged(torch.as_tensor(found.log_probs), lambda: entropy, slope)


def oracle(space: spaces.Space[Any], head: Any, parameters: Any) -> Any:
    if isinstance(space, spaces.Discrete):
        return D.Categorical(logits=parameters)
    if isinstance(space, spaces.MultiBinary):
        return D.Independent(D.Bernoulli(logits=parameters), 1)
    if isinstance(space, spaces.Box):
        return D.Independent(D.Normal(parameters, head.log_std.exp()), 1)
    return None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("squash", [False, True])
def test_drawn_actions_are_in_the_space(space: spaces.Space[Any], squash: bool, kind: Any) -> None:
    head = head_of(space, squash=squash)
    parameters = 3.0 * torch.randn(64, head.size, generator=torch.Generator().manual_seed(0))
    actions, _ = drawn(head, parameters, None, seed=1, kind=kind)
    taken = head.to_env(actions.numpy())
    assert len(taken) == 64
    assert all(space.contains(one) for one in taken)
    best = torch.as_tensor(head.best(kind(parameters), None)).numpy()
    assert all(space.contains(one) for one in head.to_env(best))


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("squash", [False, True])
def test_arrays_and_tensors_come_to_the_same(space: spaces.Space[Any], squash: bool) -> None:
    head = head_of(space, squash=squash)
    parameters = torch.randn(64, head.size, generator=torch.Generator().manual_seed(0))
    by_torch, by_numpy = (drawn(head, parameters, None, seed=1, kind=kind) for kind in KINDS)
    for one, other in zip(by_torch, by_numpy, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_log_probs_of_drawing_and_of_judging_are_the_same(
    space: spaces.Space[Any], kind: Any
) -> None:
    for squash in (False, True):
        head = head_of(space, squash=squash)
        parameters = torch.randn(16, head.size, generator=torch.Generator().manual_seed(0))
        actions, log_probs = drawn(head, parameters, None, seed=1, kind=kind)
        found = judged(head, parameters, actions, None, kind)
        assert torch.equal(found.log_probs, log_probs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", SPACES, ids=str)
def test_log_probs_and_entropy_are_those_of_the_distribution(
    space: spaces.Space[Any], kind: Any
) -> None:
    head = head_of(space, log_std=-0.5)
    parameters = torch.randn(16, head.size, generator=torch.Generator().manual_seed(0))
    actions, _ = drawn(head, parameters, None, seed=1)
    found = judged(head, parameters, actions, None, kind)
    if isinstance(space, spaces.MultiDiscrete):
        counts = space.nvec.reshape(-1).tolist()
        each = [D.Categorical(logits=one) for one in parameters.split(counts, -1)]
        log_probs = sum(one.log_prob(actions[:, k]) for k, one in enumerate(each))
        entropy = sum(one.entropy() for one in each)
    else:
        distribution = oracle(space, head, parameters)
        values = actions.float() if isinstance(space, spaces.MultiBinary) else actions
        log_probs, entropy = distribution.log_prob(values), distribution.entropy()
    torch.testing.assert_close(found.log_probs, log_probs)
    torch.testing.assert_close(found.entropy(), entropy)


def test_choices_are_drawn_as_often_as_they_are_probable() -> None:
    head = head_of(spaces.Discrete(3))
    wanted = torch.tensor([0.2, 0.5, 0.3])
    parameters = wanted.log().expand(20_000, 3)
    actions, _ = drawn(head, parameters, None, seed=0)
    found = torch.bincount(actions, minlength=3) / len(actions)
    torch.testing.assert_close(found, wanted, atol=0.015, rtol=0.0)


def test_what_a_mask_forbids_is_never_drawn_and_has_no_part_in_the_entropy() -> None:
    head = head_of(spaces.Discrete(4))
    parameters = torch.zeros(500, 4)
    masks = torch.tensor([True, False, True, False]).expand(500, 4)
    actions, log_probs = drawn(head, parameters, masks, seed=0)
    assert set(actions.tolist()) == {0, 2}
    found = judged(head, parameters, actions, masks)
    torch.testing.assert_close(found.entropy(), torch.full((500,), 2.0).log())
    torch.testing.assert_close(log_probs, torch.full((500,), 0.5).log())
    assert (head.best(bare(parameters), bare(~masks)) == 1).all()


def test_masks_of_several_choices_are_taken_apart() -> None:
    head = head_of(spaces.MultiDiscrete([2, 3]))
    masks = torch.tensor([[False, True, True, False, False]])
    actions, log_probs = drawn(head, torch.zeros(1, 5), masks, seed=0)
    assert actions.tolist() == [[1, 0]]
    assert log_probs.item() == pytest.approx(0.0)


def test_squashed_actions_have_the_density_of_the_transformed_distribution() -> None:
    space = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 1.0]), dtype=np.float64)
    head = head_of(space, squash=True, log_std=-0.3)
    assert isinstance(head, TanhGaussian)
    means = torch.randn(32, 2, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        actions, log_probs = drawn(head, means, None, seed=1)
        low, high = torch.tensor(space.low), torch.tensor(space.high)
        transforms = [
            D.TanhTransform(cache_size=1),
            D.AffineTransform((low + high) / 2, (high - low) / 2),
        ]
        spread = D.Normal(means.double(), head.log_std.double().exp())
        wanted = D.TransformedDistribution(D.Independent(spread, 1), transforms)
        taken = torch.as_tensor(head.to_env(actions.double().numpy()))
    torch.testing.assert_close(log_probs.double(), wanted.log_prob(taken), atol=1e-4, rtol=1e-4)


def test_unbounded_actions_cannot_be_squashed() -> None:
    with pytest.raises(ConfigError, match="no bounds to squash"):
        head_of(spaces.Box(-np.inf, np.inf, (2,)), squash=True)


def test_other_action_spaces_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"Text\(.*is not supported"):
        head_of(spaces.Text(5))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("counts_entropy", [False, True])
def test_slopes_are_those_that_autograd_finds(
    space: spaces.Space[Any], squash: bool, counts_entropy: bool, kind: Any
) -> None:
    head = head_of(space, squash=squash, log_std=-0.5)
    random = torch.Generator().manual_seed(0)
    parameters = torch.randn(16, head.size, generator=random).requires_grad_()
    masks = None
    if head.takes_masks:
        masks = torch.rand(16, head.size, generator=random) > 0.3
        for part in masks.split(counts(head), -1):
            part[:, 0] = True
    with torch.no_grad():
        actions, _ = drawn(head, parameters, masks, seed=1)
    push = torch.randn(16, generator=random)
    spread = torch.randn(16, generator=random) if counts_entropy else None
    log_probs, entropy = transcribed(head, parameters, actions, masks)
    loss = (push * log_probs).sum()
    if spread is not None:
        loss = loss + (spread * entropy).sum()
    loss.backward()
    wanted = {name: one.grad.clone() for name, one in head.named_parameters()}
    for one in head.parameters():
        one.grad = None
    found = judged(head, parameters, actions, masks, kind).slope(push, spread)
    torch.testing.assert_close(found, parameters.grad)
    for name, one in head.named_parameters():
        torch.testing.assert_close(one.grad, wanted[name])


def counts(head: Any) -> list[int]:
    parts = getattr(head, "_parts", [slice(0, head.size)])
    return [part.stop - part.start for part in parts]


def transcribed(head: Any, parameters: Any, actions: Any, masks: Any) -> tuple[Any, Any]:
    """Log-probabilities and entropies, as formulas that autograd can follow."""
    if hasattr(head, "log_std"):
        normal = D.Independent(D.Normal(parameters, head.log_std.exp()), 1)
        if not isinstance(head, TanhGaussian):
            return normal.log_prob(actions), normal.entropy()
        std = head.log_std.exp()
        noise = ((actions - parameters) / std).detach()
        stretched = (1.0 - (parameters + noise * std).tanh().square()).log() + head._log_scale
        fixed = (1.0 - actions.tanh().square()).log() + head._log_scale
        return normal.log_prob(actions) - fixed.sum(-1), normal.entropy() + stretched.sum(-1)
    if not head.takes_masks:
        switches = D.Independent(D.Bernoulli(logits=parameters), 1)
        return switches.log_prob(actions.float()), switches.entropy()
    logits = torch.where(masks, parameters, -1e9).split(counts(head), -1)
    each = [D.Categorical(logits=one) for one in logits]
    choices = actions.reshape(len(actions), -1).unbind(-1)
    log_probs = sum(one.log_prob(choice) for one, choice in zip(each, choices, strict=True))
    return log_probs, sum(one.entropy() for one in each)


def test_the_entropy_of_squashed_actions_is_about_that_of_what_they_become() -> None:
    head = head_of(spaces.Box(-2.0, 2.0, (1,)), squash=True)
    means = torch.full((200_000, 1), 0.8)
    with torch.no_grad():
        actions, log_probs = drawn(head, means, None, seed=0)
    found = judged(head, means, actions, None)
    assert float(found.entropy().mean()) == pytest.approx(-float(log_probs.mean()), abs=0.01)
    slope = found.slope(torch.zeros(200_000), torch.full((200_000,), 1.0 / 200_000))
    assert float(slope.sum()) == pytest.approx(-0.907, abs=0.01)  # by numerical integration


def test_squashed_actions_never_leave_their_space() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        low = rng.normal(size=3).astype(np.float32)
        space = spaces.Box(low, low + rng.uniform(0.0, 3.0, 3).astype(np.float32))
        head = head_of(space, squash=True)
        for one in head.to_env(np.array([[30.0] * 3, [-30.0] * 3], np.float32)):
            assert space.contains(one)
    flat = head_of(spaces.Box(np.float32([0.0, 1.0]), np.float32([0.0, 2.0])), squash=True)
    assert judged(flat, torch.zeros(1, 2), torch.zeros(1, 2), None).log_probs.isfinite().all()
