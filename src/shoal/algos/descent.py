"""Descent: Adam with clipped gradients, on all weights as one vector.

Small networks have a dozen small tensors, and what an optimiser does for each of them costs more
than the arithmetic: here all weights, and all gradients, are views of one vector each, so that a
step is ten operations, however many layers there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-5


class Descent:
    """Adam (Kingma & Ba 2015) for these parameters, which from here on lie in one vector."""

    def __init__(self, parameters: Iterable[nn.Parameter], max_norm: float) -> None:
        self._parameters, self._max_norm = list(parameters), max_norm
        self.weights = torch.cat([one.detach().reshape(-1) for one in self._parameters])
        self.gradient = torch.zeros_like(self.weights)
        self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.num_steps = 0
        at = 0
        for one in self._parameters:
            part = slice(at, at := at + one.numel())
            one.data = self.weights[part].view_as(one)
            one.grad = self.gradient[part].view_as(one)

    @torch.no_grad()
    def step(self, loss: Tensor, rate: float) -> Tensor:
        """Go downhill; how steep it was, before anything was clipped."""
        self.gradient.zero_()
        with torch.enable_grad():
            loss.backward()
        gradient = self.gradient
        norm: Tensor = torch.linalg.vector_norm(gradient)
        gradient.mul_((self._max_norm / (norm + 1e-6)).clamp(max=1.0))
        self.num_steps += 1
        self.mean.lerp_(gradient, 1.0 - _BETA_1)
        self.square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1.0 - _BETA_2)
        scale = math.sqrt(1.0 - _BETA_2**self.num_steps)
        spread = self.square.sqrt().div_(scale).add_(_EPSILON)
        pace = -rate / (1.0 - _BETA_1**self.num_steps)
        self.weights.addcdiv_(self.mean, spread, value=pace)
        return norm

    def state(self) -> dict[str, Tensor]:
        """What it remembers."""
        count = torch.tensor(self.num_steps)
        return {"mean": self.mean, "square": self.square, "num_steps": count}

    def put_state(self, state: Mapping[str, Tensor]) -> None:
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.num_steps = int(state["num_steps"])
