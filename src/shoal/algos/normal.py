"""Running mean and variance of what comes in, kept with the weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_MOST = 10.0
"""How many standard deviations are let through."""
_WITHOUT_DOUBLES = ("mps",)
"""Devices that have no float64."""


class Normal(nn.Module):
    """Scales observations to mean 0 and variance 1, by what was seen before.

    What it knows changes only in `see`, so that a policy judges actions by the same numbers that it
    drew them with. Where there is no float64 that stays on the CPU, and what scales is float32.
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
        self._shift.copy_(self.mean.float())
        self._scale.copy_((self.variance + 1e-8).rsqrt().float())

    def _apply(self, fn: Any, recurse: bool = True) -> Normal:
        shift = fn(self._shift)
        if shift.device.type not in _WITHOUT_DOUBLES:
            return super()._apply(fn, recurse)  # type: ignore[no-any-return,no-untyped-call]
        self._shift, self._scale = shift, fn(self._scale)
        return self

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._settle()

    def forward(self, values: Tensor) -> Tensor:
        return ((values - self._shift) * self._scale).clamp(-_MOST, _MOST)

    @torch.no_grad()
    def see(self, values: Tensor) -> None:
        """Learn from a batch `[batch, ...]` (Chan et al.'s way to join two samples)."""
        batch = values.to(self.mean.device).double()
        size, mean, variance = len(batch), batch.mean(0), batch.var(0, unbiased=False)
        total = self.count + size
        apart = mean - self.mean
        joined = self.variance * self.count + variance * size
        joined += apart.square() * self.count * size / total
        self.mean += apart * size / total
        self.variance.copy_(joined / total)
        self.count.copy_(total)
        self._settle()
