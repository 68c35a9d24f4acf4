"""CUDA graphs: what a GPU is told to do over and over again, told once.

Small networks keep a GPU waiting: to tell it of one operation takes longer than the operation. A
graph of many is told as a whole.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_WARM_UPS = 3
"""Libraries make their choices, and their working memory, in the first calls."""

Given = Tensor | None
Compute = Callable[..., tuple[Tensor, ...]]


class Graphs:
    """A function of tensors as graphs, one for each kind of arguments; results are on the CPU."""

    def __init__(self, compute: Compute, device: torch.device) -> None:
        self._compute, self._device = compute, device
        self._made: dict[tuple[object, ...], _Graph] = {}

    def __call__(self, *given: Given) -> tuple[Tensor, ...]:
        kind = tuple(None if one is None else (one.shape, one.dtype) for one in given)
        if kind not in self._made:
            self._made[kind] = _Graph(self._compute, given, self._device)
        return self._made[kind](*given)


class _Graph:
    """Weights that it uses have to stay where they are: they are read anew each time."""

    def __init__(self, compute: Compute, given: tuple[Given, ...], device: torch.device) -> None:
        places = [None if one is None else torch.empty_like(one, device=device) for one in given]
        self._places = [one for one in places if one is not None]
        self._put(given)
        aside = torch.cuda.Stream(device)
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UPS):
                found = compute(*places)
        torch.cuda.current_stream(device).wait_stream(aside)
        self._told = [torch.empty_like(one, device="cpu").pin_memory() for one in found]
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for told, one in zip(self._told, compute(*places), strict=True):
                told.copy_(one, non_blocking=True)

    def _put(self, given: tuple[Given, ...]) -> None:
        there = [one for one in given if one is not None]
        for place, one in zip(self._places, there, strict=True):
            place.copy_(one, non_blocking=True)

    def __call__(self, *given: Given) -> tuple[Tensor, ...]:
        self._put(given)
        self._graph.replay()
        torch.cuda.current_stream().synchronize()
        return tuple(one.clone() for one in self._told)
