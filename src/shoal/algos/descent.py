"""Descent: Adam with clipped gradients, on all weights as one vector.

Small networks have a dozen small tensors, and what an optimiser does for each of them costs more
than the arithmetic: here all weights, and all gradients, are views of one vector each, so that a
step is five operations, however many layers there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from shoal.errors import ConfigError

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-5
_DIVIDES = ("cpu", "cuda")
"""Devices whose fused Adam divides the gradient by what it is told; that of mps ignores it."""


class Descent:
    """Adam (Kingma & Ba 2015) for these parameters, which from here on lie in one vector."""

    def __init__(self, parameters: Iterable[nn.Parameter], max_norm: float) -> None:
        self._parameters, self._max_norm = list(parameters), max_norm
        kinds = {one.dtype for one in self._parameters}
        if len(kinds) > 1:
            raise ConfigError(
                f"the policy's weights are of several kinds: {', '.join(sorted(map(str, kinds)))}. "
                "Make them all one, as by `policy.float()`."
            )
        self.weights = torch.cat([one.detach().reshape(-1) for one in self._parameters])
        self.gradient = torch.zeros_like(self.weights)
        self.mean, self.square = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        self.num_steps = torch.zeros((), device=self.weights.device)
        at = 0
        for one in self._parameters:
            part = slice(at, at := at + one.numel())
            one.data = self.weights[part].view_as(one)
            one.grad = self.gradient[part].view_as(one)

    def begin(self) -> None:
        """Gradients are added up from here on."""
        self.gradient.zero_()

    def step(self, rate: float) -> Tensor:
        """Go downhill; how steep it was, before anything was clipped."""
        norm: Tensor = torch.linalg.vector_norm(self.gradient)
        self.num_steps += 1
        scale = (norm / self._max_norm).clamp_(min=1.0).float()
        if self.gradient.device.type not in _DIVIDES:
            self.gradient /= scale
        torch._fused_adam_(  # what `torch.optim.Adam(fused=True)` calls, after as much again
            [self.weights],
            [self.gradient],
            [self.mean],
            [self.square],
            [],
            [self.num_steps],
            lr=rate,
            beta1=_BETA_1,
            beta2=_BETA_2,
            weight_decay=0.0,
            eps=_EPSILON,
            amsgrad=False,
            maximize=False,
            grad_scale=scale if self.gradient.device.type in _DIVIDES else None,
        )
        return norm

    def state(self) -> dict[str, Tensor]:
        """What it remembers."""
        return {"mean": self.mean, "square": self.square, "num_steps": self.num_steps}

    def put_state(self, state: Mapping[str, Tensor]) -> None:
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])
        self.num_steps.copy_(state["num_steps"])
