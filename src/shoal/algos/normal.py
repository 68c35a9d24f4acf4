"""Running mean and variance of what comes in, kept with the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_MOST = 10.0
"""How many standard deviations are let through."""


class Normal(nn.Module):
    """Scales observations to mean 0 and variance 1, by what was seen before.

    What it knows changes only in `see`, so that a policy judges actions by the same numbers that it
    drew them with.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor
    _shift: Tensor
    _scale: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("_shift", torch.zeros(shape), persistent=False)
        self.register_buffer("_scale", torch.ones(shape), persistent=False)

    def _settle(self) -> None:
        """What `forward` uses, made once."""
        self._shift.copy_(self.mean)
        self._scale.copy_((self.variance + 1e-8).rsqrt())

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._settle()

    def forward(self, values: Tensor) -> Tensor:
        return ((values - self._shift) * self._scale).clamp(-_MOST, _MOST)

    @torch.no_grad()
    def see(self, values: Tensor) -> None:
        """Learn from a batch `[batch, ...]` (Chan et al.'s way to join two samples)."""
        batch = values.double()
        size, mean, variance = len(batch), batch.mean(0), batch.var(0, unbiased=False)
        total = self.count + size
        apart = mean - self.mean
        joined = self.variance * self.count + variance * size
        joined += apart.square() * self.count * size / total
        self.mean += apart * size / total
        self.variance.copy_(joined / total)
        self.count.copy_(total)
        self._settle()
