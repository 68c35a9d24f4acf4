"""What each part brings: one gradient in several ways, and training on a GPU without a part.

A gradient is that of CartPole's network on random data, with everything around it: forward, PPO's
loss, back, clipping and Adam. The ways of autograd are what anybody would write with PyTorch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.training import ours
from benchmarks.training.floor import agent_of, timed
from benchmarks.training.plan import LEAN
from benchmarks.training.task import Numbers, Task
from shoal.algos import agent as agents
from shoal.algos.agent import Agent
from shoal.algos.ppo.config import PPOConfig
from shoal.algos.ppo.learner import PPO, Material
from shoal.rollout.play import Alone
from shoal.training.ppo import threads

Step = Callable[[], object]
CONFIG = PPOConfig()
_WARM_UPS = 20


def gradient(task: Task, begun: float, way: str) -> tuple[Numbers, str]:
    """Seconds that one takes, and the first one, which may have to be compiled."""
    torch.manual_seed(task.seed)
    agent = agent_of(task.env)
    with threads(1, agent):
        step = WAYS[way](agent, batch_of(task.batch_size))
        before = time.perf_counter()
        step()
        first_s = time.perf_counter() - before
        for _ in range(_WARM_UPS):
            step()
        gradient_s = timed(step, lambda: None)
    rate = task.batch_size / gradient_s
    return {"steps_per_s": rate, "gradient_s": gradient_s, "first_s": first_s}, ""


def batch_of(size: int) -> Material:
    """Random, of CartPole's shapes."""
    actions, numbers = torch.randint(0, 2, (size,)), torch.randn(5, size)
    return Material([torch.randn(size, 4)], actions, None, numbers, is_whole=True)


def _as_it_is(agent: Agent, batch: Material) -> Step:
    learner = PPO(agent, CONFIG, num_envs=1, seed=0)

    def step() -> object:
        opinion = agent.judge(batch.leaves, batch.actions, batch.masks)
        rate, clip = CONFIG.learning_rate, CONFIG.clip_range
        return learner._learn(batch, opinion, rate, clip, is_first=False)

    return step


def _by_autograd(agent: Agent, batch: Material, *, fused: bool, compiled: bool = False) -> Step:
    weights = list(agent.network.parameters())
    adam = torch.optim.Adam(weights, CONFIG.learning_rate, eps=1e-5, foreach=False, fused=fused)

    def loss() -> Tensor:
        return _loss(agent.network, batch)

    told = torch.compile(loss) if compiled else loss

    def step() -> None:
        adam.zero_grad()
        told().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, CONFIG.max_grad_norm)
        adam.step()

    return step


def _loss(network: nn.Module, batch: Material) -> Tensor:
    old_log_probs, _, advantages, returns, _ = batch.numbers
    logits, values = network(batch.leaves[0])
    log_probs = logits.log_softmax(-1).gather(1, batch.actions[:, None])[:, 0]
    ratio, clip = (log_probs - old_log_probs).exp(), CONFIG.clip_range
    clipped = ratio.clamp(1.0 - clip, 1.0 + clip)
    policy = -torch.minimum(ratio * advantages, clipped * advantages).mean()
    value = 0.5 * (values - returns).square().mean()
    return policy + CONFIG.value_coef * value


WAYS: dict[str, Callable[[Agent, Material], Step]] = {
    "as it is": _as_it_is,
    "plain": lambda agent, batch: _by_autograd(agent, batch, fused=False),
    "fused": lambda agent, batch: _by_autograd(agent, batch, fused=True),
    "compiled": lambda agent, batch: _by_autograd(agent, batch, fused=True, compiled=True),
}


# --- training without a part --------------------------------------------------------------------


def without(task: Task, begun: float, part: str) -> tuple[Numbers, str]:
    """The same training as always, but for one part of it."""
    owner, name, instead = PARTS[part]
    before = getattr(owner, name)
    setattr(owner, name, instead)
    try:
        return ours.measure(task, begun, **LEAN)
    finally:
        setattr(owner, name, before)


PARTS: dict[str, tuple[Any, str, Any]] = {
    "graphs": (agents, "Graphs", lambda compute, device: None),
    "pages": (Alone, "is_in_place", False),
}
"""Where each part is, and what stands there without it."""
