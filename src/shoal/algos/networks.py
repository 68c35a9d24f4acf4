"""Networks: what a policy that nobody has written is made of.

An encoder for each leaf of the observation space, a memory if one is asked for, and two stacks of
layers: one for the actions, one for the value. Any other `torch.nn.Module` will do in its place
(`Network`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.algos.plain import Plain, PlainPair
from shoal.errors import ConfigError
from shoal.layout import Layout, Leaf

Observation = Any
"""A tensor `[batch, ...]`, or dicts and tuples of them, as the observation space has it."""


class Network(Protocol):
    """What a policy's own network must offer.

    It is made with the observation space and the number of parameters that actions need. Called
    with observations it returns these parameters `[batch, parameters]` and values `[batch]`. One
    that remembers has a `state_size` and is called with observations and state `[batch, state]`,
    zero at the start of an episode, and returns the new state as well.
    """

    def __call__(self, observation: Observation, *state: Tensor) -> Any: ...


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """What the network looks like."""

    hidden_sizes: tuple[int, ...] = (64, 64)
    """Widths of the layers, for actions and for values alike."""
    activation: Literal["tanh", "relu", "elu", "silu"] = "tanh"
    """What follows each layer."""
    memory: Literal["none", "gru", "lstm"] = "none"
    """What the policy remembers with, from one step to the next."""
    memory_size: int = 64
    """How many numbers it remembers."""
    normalize_observations: bool = False
    """Scale observations to mean 0 and variance 1, by all that was seen; saved with the weights."""
    squash_actions: bool = False
    """Squash continuous actions into their bounds by tanh; else they are clipped."""
    initial_log_std: float = 0.0
    """Logarithm of the spread of continuous actions at the start."""

    def __post_init__(self) -> None:
        for width in (*self.hidden_sizes, self.memory_size):
            if width < 1:
                raise ConfigError(
                    "hidden_sizes and memory_size must be at least 1, got "
                    f"{list(self.hidden_sizes)} and {self.memory_size}."
                )


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "elu": nn.functional.elu,
    "silu": nn.functional.silu,
}


class ActorCritic(nn.Module):
    """Encoders, memory, and two stacks of layers.

    `central`: the width of what, at the end of an observation, only the stack for values sees.
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        num_parameters: int,
        config: NetworkConfig,
        central: int = 0,
    ) -> None:
        super().__init__()
        self._layout, self._central = Layout(space), central
        self.encoders = nn.ModuleList(encoder_of(leaf) for leaf in self._layout.leaves)
        self._is_vector = len(self.encoders) == 1 and _is_vector(self.encoders[0])
        width = sum(encoder.size for encoder in self.encoders) - central  # type: ignore[misc]
        self.memory: Memory | None = None
        self.state_size = 0
        if config.memory != "none":
            self.memory = Memory(config.memory, width, config.memory_size)
            width, self.state_size = config.memory_size, self.memory.state_size
        activation, sizes = config.activation, config.hidden_sizes
        self.actions = Stack(width, sizes, num_parameters, activation, gain=0.01)
        self.values = Stack(width + central, sizes, 1, activation, gain=1.0)
        learns = self.memory is not None or any(list(one.parameters()) for one in self.encoders)
        self.plain: PlainPair | None = None
        """Both stacks by NumPy, if only they learn."""
        if self.actions.plain is not None and self.values.plain is not None and not learns:
            self.plain = PlainPair(self.actions.plain, self.values.plain, width)

    def encode(self, observation: Observation) -> Tensor:
        if self._is_vector and observation.dtype == torch.float32:
            return observation  # type: ignore[no-any-return]
        parts = self._layout.take_apart(observation)
        encoded = [one(part) for one, part in zip(self.encoders, parts, strict=True)]
        return encoded[0] if len(encoded) == 1 else torch.cat(encoded, -1)

    def decide(self, features: Tensor, central: Tensor) -> tuple[Tensor, Tensor]:
        known = torch.cat([features, central], -1) if self._central else features
        return self.actions(features), self.values(known)[..., 0]

    def _apart(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """What both stacks see, and what one does."""
        width = features.shape[-1] - self._central
        return features[..., :width], features[..., width:]

    def forward(self, observation: Observation, *state: Tensor) -> Any:
        features, central = self._apart(self.encode(observation))
        if self.memory is None:
            return self.decide(features, central)
        features, remembered = self.memory(features, *state)
        return *self.decide(features, central), remembered

    def unroll(
        self, observation: Observation, state: Tensor, starts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Parameters and values of whole sequences `[time, batch]`, observations `[time * batch]`.

        At each step that starts an episode nothing is remembered.
        """
        assert self.memory is not None
        features, central = self._apart(self.encode(observation))
        recalled = []
        for seen, is_start in zip(features.unflatten(0, starts.shape), starts, strict=True):
            seen, state = self.memory(seen, state * ~is_start[:, None])
            recalled.append(seen)
        return self.decide(torch.cat(recalled), central)


class Memory(nn.Module):
    """A GRU or LSTM cell, its state in one tensor `[batch, state_size]`."""

    def __init__(self, kind: str, width: int, size: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, size) if kind == "gru" else nn.LSTMCell(width, size)
        self.state_size = size if kind == "gru" else 2 * size
        for name, weights in self.cell.named_parameters():
            (nn.init.orthogonal_ if "weight" in name else nn.init.zeros_)(weights)

    def forward(self, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """What is remembered after these, to be used and to be kept."""
        if isinstance(self.cell, nn.GRUCell):
            hidden = self.cell(features, state)
            return hidden, hidden
        hidden, inner = self.cell(features, state.chunk(2, -1))
        return hidden, torch.cat([hidden, inner], -1)


class Stack(nn.Module):
    """Fully connected layers; orthogonal weights, smaller in the last one."""

    def __init__(self, width: int, sizes: Sequence[int], out: int, activation: str, gain: float):
        super().__init__()
        widths, gains = [width, *sizes, out], [2.0**0.5] * len(sizes) + [gain]
        layers = [
            _orthogonal(nn.Linear(one, other), gain)
            for one, other, gain in zip(widths, widths[1:], gains, strict=False)
        ]
        self.layers, self._activate = nn.ModuleList(layers), _ACTIVATIONS[activation]
        self.plain = Plain(layers, activation) if Plain.can(activation) else None
        """The same layers by NumPy, where they can be had so."""

    def forward(self, features: Tensor) -> Tensor:
        *inner, last = self.layers
        for layer in inner:
            features = self._activate(layer(features))
        return last(features)  # type: ignore[no-any-return]


def _is_vector(encoder: nn.Module) -> bool:
    return isinstance(encoder, Flat) and encoder.is_vector


def _orthogonal(layer: Any, gain: float) -> Any:
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def encoder_of(leaf: Leaf) -> Any:
    """What turns one leaf of an observation into features; ConfigError where nothing does."""
    space = leaf.space
    if is_image(space):
        return Pixels(space.shape)  # type: ignore[arg-type]
    if isinstance(space, spaces.Discrete):
        return OneHot([int(space.n)], int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return OneHot(space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist())
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return Flat(space.shape)
    raise ConfigError(
        f"{leaf.name('observation')} is a {space}, which no network here can read. Wrap the "
        "environment so that it becomes an array, or give a policy of your own."
    )


def is_image(space: spaces.Space[Any]) -> bool:
    """Bytes in two to four dimensions, of which two are large enough for a convolution."""
    return (
        isinstance(space, spaces.Box)
        and space.dtype == np.uint8
        and 2 <= len(space.shape) <= 4
        and sorted(space.shape)[-2] >= 36
    )


class Flat(nn.Module):
    """Numbers as they are; bytes from 0 to 1."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.size, self.is_vector = int(np.prod(shape)), len(shape) == 1

    def forward(self, values: Tensor) -> Tensor:
        values = values / 255.0 if values.dtype == torch.uint8 else values.float()
        return values if self.is_vector else values.reshape(len(values), self.size)


class OneHot(nn.Module):
    """Choices, each as one of several switches."""

    _first: Tensor

    def __init__(self, counts: list[int], first: Any) -> None:
        super().__init__()
        self._counts, self.size = counts, sum(counts)
        self.register_buffer("_first", torch.as_tensor(first), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        chosen = values.long().reshape(len(values), -1) - self._first
        hot = [nn.functional.one_hot(chosen[:, k], n) for k, n in enumerate(self._counts)]
        return torch.cat(hot, -1).float()


class Pixels(nn.Module):
    """The convolutions of Mnih et al. (2015).

    For pictures `[h, w]`, `[h, w, c]` or `[c, h, w]`, and for several at a time, `[k, h, w, c]` or
    `[k, c, h, w]`: all channels together are what the first convolution sees.
    """

    def __init__(self, shape: tuple[int, ...], size: int = 512) -> None:
        super().__init__()
        self._order, height, width, channels = _planes(shape)
        gain = 2.0**0.5
        self.convolutions = nn.Sequential(
            _orthogonal(nn.Conv2d(channels, 32, 8, 4), gain),
            nn.ReLU(),
            _orthogonal(nn.Conv2d(32, 64, 4, 2), gain),
            nn.ReLU(),
            _orthogonal(nn.Conv2d(64, 64, 3, 1), gain),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, channels, height, width)).shape[1]
        self.last, self.size = (
            nn.Sequential(_orthogonal(nn.Linear(flat, size), gain), nn.ReLU()),
            size,
        )

    def forward(self, pictures: Tensor) -> Tensor:
        planes = pictures.permute(0, *self._order)
        planes = planes.reshape(len(planes), -1, *planes.shape[-2:])
        features: Tensor = self.last(self.convolutions(planes.float() / 255.0))
        return features


def _planes(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int, int, int]:
    """How to order the axes so that height and width come last; height, width, all channels.

    Height and width are neighbours, and the largest such.
    """
    first = max(range(len(shape) - 1), key=lambda at: min(shape[at : at + 2]))
    others = [at for at in range(len(shape)) if at not in (first, first + 1)]
    order = tuple(at + 1 for at in (*others, first, first + 1))
    channels = int(np.prod([shape[at] for at in others]))
    return order, shape[first], shape[first + 1], channels
