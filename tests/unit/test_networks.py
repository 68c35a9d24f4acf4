"""Gradients that a network finds by itself are those that autograd finds."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

from shoal.algos.agent import Agent  # noqa: E402
from shoal.algos.descent import Descent  # noqa: E402
from shoal.algos.networks import ActorCritic, NetworkConfig, Pixels  # noqa: E402

SEEN = spaces.Dict(
    {"where": spaces.Box(-1.0, 1.0, (3,), np.float32), "which": spaces.Discrete(4, start=1)}
)


class Elsewhere(ActorCritic):
    """The same network, by autograd: what is not ours is not looked into."""


def gradient(
    network: type[ActorCritic], config: NetworkConfig, action_space: spaces.Space[object]
) -> torch.Tensor:
    torch.manual_seed(0)
    make = None if network is ActorCritic else lambda space, size: network(space, size, config)
    agent = Agent(SEEN, action_space, config, make)
    descent = Descent(agent.parameters(), 1e9)
    leaves = [torch.randn(16, 3), torch.randint(1, 5, (16,))]
    with torch.no_grad():
        parameters, _ = agent.network(agent.observation(leaves))
    noise = agent.head.noise(16, torch.Generator().manual_seed(1))
    actions, _ = agent.head.draw(parameters, None, noise)
    opinion = agent.judge(leaves, actions, None)
    assert (opinion.traced is None) == (network is Elsewhere or config.activation == "silu")
    slope = np.linspace(-1.0, 1.0, 16, dtype=np.float32)
    descent.begin()
    agent.go_back(opinion, slope, 0.1 * abs(slope), slope * slope)
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


@pytest.mark.parametrize("change", ["moved", "copied", "loaded"])
def test_plain_layers_follow_their_weights(change: str) -> None:
    agent = Agent(spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2), NetworkConfig((8,)))
    seen = np.ones((4, 3), np.float32)
    before = agent.value((seen,), None)
    if change == "moved":
        Descent(agent.parameters(), 1.0)
    elif change == "copied":
        agent = copy.deepcopy(agent)
    else:
        agent.load_state_dict({name: one.clone() for name, one in agent.state_dict().items()})
    assert np.array_equal(agent.value((seen,), None), before)
    with torch.no_grad():
        agent.network.values.layers[-1].bias += 1.0
    np.testing.assert_allclose(agent.value((seen,), None), before + 1.0, rtol=1e-6)


def test_batches_of_all_sizes_go_back_as_far() -> None:
    """The memory that is used again is made for the largest."""
    agent = Agent(spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2), NetworkConfig((8, 4)))
    descent, found = Descent(agent.parameters(), 1.0), {}
    for size in (4, 16, 4):
        seen = torch.linspace(-1.0, 1.0, 48).view(16, 3)[:size]
        opinion = agent.judge([seen], torch.zeros(size, dtype=torch.long), None)
        descent.begin()
        agent.go_back(opinion, np.ones(size, np.float32), None, np.ones(size, np.float32))
        if size in found:
            assert torch.equal(descent.gradient, found[size])
        found[size] = descent.gradient.clone()
    assert not torch.equal(found[4], found[16])


def test_what_is_frozen_in_a_policy_of_ones_own_stays() -> None:
    config = NetworkConfig(hidden_sizes=(8,))

    def make(space: spaces.Space[object], size: int) -> ActorCritic:
        made = ActorCritic(space, size, config)
        made.values.layers[0] = made.actions.layers[0]  # and shared
        for one in made.actions.layers[0].parameters():
            one.requires_grad_(False)
        return made

    agent = Agent(SEEN, spaces.Discrete(3), config, make)
    descent = Descent(agent.parameters(), 1e9)
    before = agent.network.actions.layers[0].weight.clone()
    assert not [name for name in agent.state_dict() if not name.startswith(("network.", "head."))]
    leaves = [torch.randn(16, 3), torch.randint(1, 5, (16,))]
    opinion = agent.judge(leaves, torch.zeros(16, dtype=torch.long), None)
    descent.begin()
    agent.go_back(opinion, np.ones(16, np.float32), None, np.ones(16, np.float32))
    descent.step(1e-2)
    assert torch.equal(agent.network.actions.layers[0].weight, before)
    assert agent.network.values.layers[0] is agent.network.actions.layers[0]


@pytest.mark.parametrize(
    ("shape", "planes"),
    [
        ((40, 48), (1, 40, 48)),
        ((40, 48, 3), (3, 40, 48)),
        ((3, 40, 48), (3, 40, 48)),
        ((4, 40, 48, 3), (12, 40, 48)),
        ((4, 1, 40, 48), (4, 40, 48)),
    ],
    ids=str,
)
def test_pictures_come_to_convolutions_as_planes(
    shape: tuple[int, ...], planes: tuple[int, int, int]
) -> None:
    space = spaces.Box(0, 255, shape, np.uint8)
    network = ActorCritic(space, 2, NetworkConfig())
    (encoder,) = network.encoders
    assert isinstance(encoder, Pixels)
    seen: list[torch.Size] = []
    encoder.convolutions.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))
    network(torch.zeros(2, *shape, dtype=torch.uint8))
    assert tuple(seen[0]) == (2, *planes)


def test_small_bytes_and_choices_of_several_dimensions_are_read() -> None:
    bytes_ = ActorCritic(spaces.Box(0, 255, (7, 7, 3), np.uint8), 2, NetworkConfig())
    assert bytes_.encode(torch.full((2, 7, 7, 3), 255, dtype=torch.uint8)).max() == 1.0
    grid = spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [0, -1]])
    choices = ActorCritic(grid, 2, NetworkConfig())
    seen = torch.as_tensor(np.stack([grid.start, grid.start + grid.nvec - 1]))
    hot = choices.encode(seen)
    assert hot.sum(-1).tolist() == [4.0, 4.0]
    assert hot[0].nonzero().ravel().tolist() == [0, 2, 5, 9]
    assert hot[1].nonzero().ravel().tolist() == [1, 4, 8, 10]
