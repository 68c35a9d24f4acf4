"""On a GPU: what is decided there is what would be decided without graphs, and it learns."""

from __future__ import annotations

import gc
import logging
from typing import Any

import numpy as np
import pytest
import worlds
from gymnasium import spaces

torch = pytest.importorskip("torch")

from learning.test_in_place import Noise, copied, is_in_place  # noqa: E402
from shoal.algos import pinning  # noqa: E402
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


# --- memory that a GPU reads by itself -----------------------------------------------------------


def test_memory_is_pinned_once_and_for_as_long_as_it_exists() -> None:
    array = np.zeros(1 << 16, np.float32)
    address = array.ctypes.data
    for _ in range(2):
        pinning.pin(array)
    assert torch.from_numpy(array).is_pinned()
    del array
    gc.collect()
    assert address not in pinning._pinned


def test_memory_that_cannot_be_pinned_is_used_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    whole = np.ones(1 << 16, np.float32)
    pinning.pin(whole)
    with caplog.at_level(logging.INFO, "shoal"):
        pinning.pin(whole[1024:])  # some of it is registered already, which CUDA refuses
    assert "could not be pinned" in caplog.text
    assert torch.from_numpy(whole[1024:]).to("cuda").sum().item() == whole.size - 1024


def learnt(backend: str) -> tuple[list[list[Any]], list[bool], list[Any]]:
    """Rollouts, whether each was pinned and in place, and the weights that came of them."""
    config = override(
        PPORun(),
        n_envs=5,
        n_steps=6,
        n_epochs=2,
        batch_size=10,
        hidden_sizes=(4,),
        total_steps=10**6,
        device="cuda",
        backend=backend,
        num_workers=2,
        seed=1,
    )
    rollouts, in_place = [], []
    with Training(config, Noise) as training:
        for _ in range(4):
            rollout = training.source.collect()
            pages = [leaf for leaf in rollout.observations if leaf.shape[-1] == 4096]
            is_pinned = all(torch.from_numpy(page).is_pinned() for page in pages)
            in_place.append(is_pinned and is_in_place(rollout))
            rollouts.append(copied(rollout))
            training.learner.update(rollout)
            del rollout, pages
        weights = [one.detach().cpu() for one in training.agent.parameters()]
    return rollouts, in_place, weights


def test_rollouts_that_a_gpu_reads_in_place_are_those_of_the_serial_backend() -> None:
    expected, _, wanted = learnt("serial")
    found, in_place, weights = learnt("process")
    assert in_place == [True] * 4
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)
    for mine, theirs in zip(weights, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
