"""Adam on one vector, against PyTorch's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from shoal.algos.descent import Descent  # noqa: E402


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def go_down(descent: Descent, net: nn.Module, seen: torch.Tensor) -> torch.Tensor:
    descent.begin()
    net(seen).square().sum().backward()
    return descent.step(1e-2)


def as_on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have fused Adam take no notice of `grad_scale`, and say that it does not."""
    adam = torch._fused_adam_

    def unscaled(*args: Any, grad_scale: Any, **kwargs: Any) -> None:
        adam(*args, **kwargs)

    monkeypatch.setattr(torch, "_fused_adam_", unscaled)
    monkeypatch.setattr("shoal.algos.descent._DIVIDES", (), raising=False)


@pytest.mark.parametrize("divides", [True, False], ids=["divides", "does not"])
@pytest.mark.parametrize("max_norm", [0.05, 1e9], ids=["clipped", "not clipped"])
def test_steps_are_those_of_adam_with_clipped_gradients(
    max_norm: float, divides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not divides:
        as_on_a_mac(monkeypatch)
    mine, theirs = network(), network()
    descent = Descent(mine.parameters(), max_norm)
    adam = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5)
    for k in range(20):
        seen = torch.randn(7, 3, generator=torch.Generator().manual_seed(k))
        norm = go_down(descent, mine, seen)
        adam.zero_grad()
        theirs(seen).square().sum().backward()
        wanted = nn.utils.clip_grad_norm_(theirs.parameters(), max_norm)
        adam.step()
        torch.testing.assert_close(norm, wanted)
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_it_goes_on_where_another_was() -> None:
    one = network()
    descent = Descent(one.parameters(), 0.5)
    seen = torch.ones(4, 3)
    for _ in range(3):
        go_down(descent, one, seen)
    other = network()
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    second = Descent(other.parameters(), 0.5)
    second.put_state({name: value.clone() for name, value in descent.state().items()})
    for net, steps in ((one, descent), (other, second)):
        go_down(steps, net, seen)
    assert torch.equal(descent.weights, second.weights)


def test_weights_that_are_loaded_later_are_the_ones_that_are_improved() -> None:
    net = network()
    descent = Descent(net.parameters(), 0.5)
    net.load_state_dict({name: torch.zeros_like(one) for name, one in net.state_dict().items()})
    assert not descent.weights.any()
    descent.begin()
    (net(torch.ones(1, 3)) - 1.0).square().sum().backward()
    descent.step(1e-2)
    assert descent.weights.any()
    assert net[2].bias.any()
