"""The floor: matrix products and convolutions of a training alone, on random data.

They are written down while the agent's own network goes forward and back once, and then done again
without anything else: nothing is read, drawn, compared or stepped. On a GPU they are replayed as
one graph, so that nobody waits for their launch either.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from benchmarks.training.task import Numbers, Task
from shoal.algos.agent import Agent
from shoal.algos.networks import NetworkConfig
from shoal.training.ppo import threads
from shoal.vector.source import resolve

_ATEN = torch.ops.aten
PRODUCTS = (_ATEN.convolution, _ATEN.convolution_backward, _ATEN.addmm, _ATEN.mm)
PRECISIONS = {
    "as it comes": "convolutions in tf32, matrix products in fp32",  # PyTorch's own choice
    "fp32": "all in fp32",
    "tf32": "all in tf32",
    "bf16": "all in bf16",  # as under autocast, without its casts
}
_WARM_UPS, _AT_A_TIME, _WHILE_S = 3, 5, 0.3


class Call(NamedTuple):
    """An operation, and what it was called with; tensors by their shape and how they lie."""

    operation: Any
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor without its numbers."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Shape:
        return cls(tuple(tensor.shape), tensor.stride())

    def random(self, device: str, dtype: torch.dtype) -> Tensor:
        room = torch.empty_strided(self.sizes, self.strides, device=device, dtype=dtype)
        return room.normal_()


class Recorder(TorchDispatchMode):
    """Writes down products, and lets all go on."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func.overloadpacket in PRODUCTS:
            self.calls.append(Call(func, tree_map_only(Tensor, Shape.of, args)))
        return func(*args, **(kwargs or {}))


def agent_of(env: str) -> Agent:
    """Untrained, of the size that a training has by default."""
    made = resolve(env).factories[0]()
    try:
        return Agent(made.observation_space, made.action_space, NetworkConfig())
    finally:
        made.close()


def products(agent: Agent, batch_size: int, *, learns: bool) -> list[Call]:
    """Those of one batch: forward, and back where the agent `learns`."""
    leaves = [
        torch.from_numpy(np.zeros((batch_size, *leaf.shape), leaf.dtype))
        for leaf in agent.layout.leaves
    ]
    recorder = Recorder()
    with recorder, torch.set_grad_enabled(learns):
        told = agent.network(agent.observation(leaves))
        if learns:
            torch.autograd.backward(told, [torch.randn_like(one) for one in told])
    return recorder.calls


def measure(task: Task, begun: float, precision: str) -> tuple[Numbers, str]:
    """What one update comes to, and the steps per second that it would allow."""
    agent = agent_of(task.env)
    acting = products(agent, task.n_envs, learns=False)
    learning = products(agent, task.batch_size, learns=True)
    dtype = _set(precision)
    num_batches = task.n_epochs * -(-task.rollout // task.batch_size)
    with threads(None, agent):
        # One more than steps: what the last observation is worth.
        acting_s = (task.n_steps + 1) * taken_s(acting, task.device, dtype)
        learning_s = num_batches * taken_s(learning, task.device, dtype)
    update_s = acting_s + learning_s
    numbers = {
        "steps_per_s": task.rollout / update_s,
        "update_s": update_s,
        "floor_acting_s": acting_s,
        "floor_learning_s": learning_s,
    }
    return numbers, PRECISIONS[precision] if task.device == "cuda" else ""


def _set(precision: str) -> torch.dtype:
    if precision in ("fp32", "tf32"):
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    return torch.bfloat16 if precision == "bf16" else torch.float32


@torch.no_grad()
def taken_s(calls: Sequence[Call], device: str, dtype: torch.dtype) -> float:
    """Seconds that these take, one after the other."""

    def fill(arguments: Any) -> Any:
        return tree_map_only(Shape, lambda one: one.random(device, dtype), arguments)

    filled = [(one.operation, fill(one.arguments)) for one in calls]

    def do_all() -> None:
        for operation, arguments in filled:
            operation(*arguments)

    for _ in range(_WARM_UPS):
        do_all()
    if device != "cuda":
        return timed(do_all, lambda: None)
    return timed(_graph_of(do_all).replay, torch.cuda.synchronize)


def _graph_of(do_all: Callable[[], None]) -> Any:
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        do_all()
    return graph


def timed(do: Callable[[], None], finish: Callable[[], None]) -> float:
    """The shortest of several times: others who use the machine only ever make it longer."""
    finish()
    shortest_s, until = math.inf, time.perf_counter() + _WHILE_S
    while (begun := time.perf_counter()) < until:
        for _ in range(_AT_A_TIME):
            do()
        finish()
        shortest_s = min(shortest_s, (time.perf_counter() - begun) / _AT_A_TIME)
    return shortest_s
