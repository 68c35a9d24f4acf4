"""On a GPU: what is decided there is what would be decided without graphs, and it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import worlds
from gymnasium import spaces

torch = pytest.importorskip("torch")

from shoal.algos.agent import Agent  # noqa: E402
from shoal.algos.networks import NetworkConfig  # noqa: E402
from shoal.training.config import PPORun  # noqa: E402
from shoal.training.ppo import Training  # noqa: E402
from shoal.training.settings import override  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

NUM_ENVS = 6
FRAMES = spaces.Box(0, 255, (36, 36, 2), np.uint8)
POINTS = spaces.Box(-1.0, 1.0, (3,), np.float32)


def decided(agent: Agent, seed: int, *, eager: bool) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    space = agent.layout.leaves[0].space
    seen = np.stack([space.sample() for _ in range(NUM_ENVS)])
    seen = (seen * rng.random(seen.shape)).astype(seen.dtype)
    state = agent.initial_state(NUM_ENVS)
    if state is not None:
        state += rng.random(state.shape, np.float32)
    masks = None
    if agent.head.takes_masks:
        masks = np.ones((NUM_ENVS, agent.head.size), np.bool_)
        masks[:, 1] = False
    (noise,) = agent.noise(1, NUM_ENVS, torch.Generator().manual_seed(seed))
    kept = agent._graphs
    if eager:
        agent._graphs = None
    try:
        return [one for one in agent.act((seen,), state, masks, noise) if one is not None]
    finally:
        agent._graphs = kept


@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("seen", [FRAMES, POINTS], ids=["frames", "points"])
@pytest.mark.parametrize("action_space", [spaces.Discrete(3), spaces.Box(-1.0, 1.0, (2,))], ids=str)
def test_graphs_decide_as_the_network_does(
    seen: spaces.Box, action_space: spaces.Space[Any], memory: Any
) -> None:
    config = NetworkConfig(memory=memory, normalize_observations=seen is POINTS)
    agent = Agent(seen, action_space, config).to("cuda")
    assert agent._graphs is not None
    for seed in range(3):
        seen.seed(seed)
        by_graph = decided(agent, seed, eager=False)
        seen.seed(seed)
        by_network = decided(agent, seed, eager=True)
        for one, other in zip(by_graph, by_network, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
        with torch.no_grad():
            for one in agent.parameters():  # what is learnt is seen by the same graph
                one += 0.1 * torch.randn_like(one)
    assert len(agent._graphs._made) == 1


@pytest.mark.parametrize("changes", [{}, {"memory": "gru"}, {"normalize_observations": True}])
def test_it_learns_there_too(changes: dict[str, Any]) -> None:
    config = override(
        PPORun(),
        env="CartPole-v1",
        n_envs=4,
        n_steps=32,
        total_steps=10_000,
        device="cuda",
        backend="serial",
        **changes,
    )
    with Training(config, "CartPole-v1") as training:
        before = [one.detach().clone() for one in training.agent.parameters()]
        for _ in range(3):
            metrics = training.learner.update(training.source.collect())
        assert np.isfinite(metrics["train/policy_loss"])
        assert all(
            not torch.equal(one, other)
            for one, other in zip(before, training.agent.parameters(), strict=True)
        )


def test_a_cpu_and_a_gpu_learn_alike() -> None:
    found = {}
    for device in ("cpu", "cuda"):
        config = override(
            PPORun(), n_envs=4, n_steps=32, n_epochs=1, total_steps=128, device=device, seed=1
        )
        with Training(config, worlds.Fitting) as training:
            training.learner.update(training.source.collect())
        found[device] = [one.detach().cpu() for one in training.agent.parameters()]
    for one, other in zip(found["cpu"], found["cuda"], strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
