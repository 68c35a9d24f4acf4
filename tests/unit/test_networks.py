"""Gradients that a network finds by itself are those that autograd finds."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from shoal.algos.agent import Agent  # noqa: E402
from shoal.algos.descent import Descent  # noqa: E402
from shoal.algos.networks import ActorCritic, NetworkConfig  # noqa: E402

SEEN = spaces.Dict(
    {"where": spaces.Box(-1.0, 1.0, (3,), np.float32), "which": spaces.Discrete(4, start=1)}
)


class Elsewhere(ActorCritic):
    """The same network, by autograd: what is not ours is not looked into."""


def gradient(
    network: type[ActorCritic], config: NetworkConfig, action_space: spaces.Space[object]
) -> torch.Tensor:
    torch.manual_seed(0)
    agent = Agent(SEEN, action_space, config, lambda space, size: network(space, size, config))
    descent = Descent(agent.parameters(), 1e9)
    leaves = [torch.randn(16, 3), torch.randint(1, 5, (16,))]
    with torch.no_grad():
        parameters, _ = agent.network(agent.observation(leaves))
        noise = agent.head.noise(16, torch.Generator().manual_seed(1))
        actions, _ = agent.head.draw(parameters, None, noise)
    opinion = agent.judge(leaves, actions, None)
    assert (opinion.traced is None) == (network is Elsewhere or config.activation == "silu")
    slope = torch.linspace(-1.0, 1.0, 16)
    descent.begin()
    agent.go_back(opinion, slope, 0.1 * slope.abs(), slope.square())
    return descent.gradient


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
@pytest.mark.parametrize("sizes", [(8, 8), (8,), ()], ids=str)
@pytest.mark.parametrize(
    "action_space", [spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,), np.float32)], ids=str
)
def test_gradients_are_those_of_autograd(
    activation: str, sizes: tuple[int, ...], action_space: spaces.Space[object]
) -> None:
    config = NetworkConfig(hidden_sizes=sizes, activation=activation)  # type: ignore[arg-type]
    found = gradient(ActorCritic, config, action_space)
    wanted = gradient(Elsewhere, config, action_space)
    assert float(wanted.norm()) > 0.1
    torch.testing.assert_close(found, wanted)
