"""Plain layers on a CPU, by NumPy: what a small network costs there is not its arithmetic.

With 64 units and batches of 256 a layer's product takes 2 to 25 µs, and around it PyTorch takes as
long again: for the call of a module, for what autograd writes down, for every operation on a few
hundred numbers. So layers of these kinds are computed here, and so are their gradients, on the
memory of PyTorch's own weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from shoal.algos.numbers import bare
from shoal.layout import Array

Traced = list[Array]
"""What goes into each layer of a stack, and what comes out of the last one."""


def _tanh(values: Array) -> None:
    np.tanh(values, out=values)


def _relu(values: Array) -> None:
    np.maximum(values, 0.0, out=values)


def _slope_of_tanh(after: Array) -> None:
    np.square(after, out=after)
    np.subtract(1.0, after, out=after)


def _slope_of_relu(after: Array) -> None:
    np.sign(after, out=after)


_KINDS: dict[str, tuple[Callable[[Array], None], Callable[[Array], None]]] = {
    "tanh": (_tanh, _slope_of_tanh),
    "relu": (_relu, _slope_of_relu),
}
"""For each activation, in place: itself, and its slope from what came out of it."""


class Plain:
    """Linear layers with one kind of activation between them; their weights may change and move."""

    def __init__(self, layers: Sequence[nn.Linear], activation: str) -> None:
        self._layers, self._activation = layers, activation
        self._activate, self._to_slope = _KINDS[activation]
        self._where = 0
        self._first_gradient: Tensor | None = None
        self._weights: list[tuple[Array, Array]] = []
        self._gradients: list[tuple[Array, Array]] = []
        self._rooms: list[tuple[Array, Array]] = []
        self._ones = np.ones(0, np.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        return Plain, (self._layers, self._activation)  # a copy's weights lie elsewhere

    @staticmethod
    def can(activation: str) -> bool:
        """Whether layers of this kind are plain."""
        return activation in _KINDS

    def __call__(self, features: Array) -> Array:
        """What becomes of `[batch, width]`."""
        return self._run(features, [None] * len(self._layers))[-1]

    def trace(self, features: Array) -> Traced:
        """The same, and how; to be used before the next call, which takes the same memory."""
        self._make_room(len(features))
        return self._run(features, [*(room[: len(features)] for room, _ in self._rooms), None])

    def _run(self, features: Array, rooms: list[Array | None]) -> Traced:
        if self._layers[0].weight.data_ptr() != self._where:
            self._where = self._layers[0].weight.data_ptr()
            self._weights = [(bare(one.weight), bare(one.bias)) for one in self._layers]
        traced, last = [features], len(rooms) - 1
        for at, ((weight, bias), room) in enumerate(zip(self._weights, rooms, strict=True)):
            features = np.dot(features, weight.T, out=room)
            np.add(features, bias, out=features)
            if at < last:
                self._activate(features)
            traced.append(features)
        return traced

    def _make_room(self, num_rows: int) -> None:
        """What is asked for anew each time comes with pages that the system has to clear."""
        if num_rows > len(self._ones):
            self._ones = np.ones(num_rows, np.float32)
            shapes = [(num_rows, layer.out_features) for layer in self._layers[:-1]]
            self._rooms = [
                (np.empty(shape, np.float32), np.empty(shape, np.float32)) for shape in shapes
            ]

    def go_back(self, traced: Traced, gradient: Array) -> None:
        """Write the gradient of each weight where autograd would, from that of what came out.

        What was traced is used up.
        """
        if self._layers[0].weight.grad is not self._first_gradient:
            self._first_gradient = self._layers[0].weight.grad
            self._gradients = [
                (bare(one.weight.grad), bare(one.bias.grad))  # type: ignore[arg-type]
                for one in self._layers
            ]
        count = len(gradient)
        for at in reversed(range(len(self._weights))):
            of_weight, of_bias = self._gradients[at]
            np.dot(gradient.T, traced[at], out=of_weight)
            np.dot(self._ones[:count], gradient, out=of_bias)  # a sum, three times as quickly
            if at:
                gradient = np.dot(
                    gradient, self._weights[at][0], out=self._rooms[at - 1][1][:count]
                )
                self._to_slope(traced[at])
                np.multiply(gradient, traced[at], out=gradient)


class PlainPair:
    """Two stacks: one for the actions, which is given `width` features, one for the value."""

    def __init__(self, actions: Plain, values: Plain, width: int) -> None:
        self._actions, self._values, self._width = actions, values, width

    def __call__(self, features: Array) -> tuple[Array, Array]:
        """Parameters `[batch, size]` and values `[batch]`."""
        return self._actions(features[:, : self._width]), self._values(features)[:, 0]

    def trace(self, features: Array) -> tuple[Traced, Traced]:
        return self._actions.trace(features[:, : self._width]), self._values.trace(features)

    def go_back(self, traced: tuple[Traced, Traced], slope: Array, pull: Array) -> None:
        """From what a loss changes by with parameters and with values."""
        for_actions, for_values = traced
        self._actions.go_back(for_actions, slope)
        self._values.go_back(for_values, pull[:, None])
