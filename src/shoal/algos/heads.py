"""Heads: from what a network puts out to actions, their probabilities and their entropy.

Which head an action space has is decided here, once (`head_of`). A head says how many numbers it
needs for each environment (`size`); what the policy draws is recorded as it was drawn, and turned
into what the environment takes at the very end (`to_env`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.errors import ConfigError
from shoal.layout import Array

_NEVER = -1e9
"""The logit of an action that is not possible."""
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


class Judged(NamedTuple):
    """What a policy makes of actions. What is seldom wanted is found when it is asked for."""

    log_probs: Tensor
    entropy: Callable[[], Tensor]
    """Of the distribution that each action comes from."""
    slope: Callable[[Tensor, Tensor | None], Tensor]
    """What a loss changes by with each parameter, if with log-probabilities it changes by the
    first and with entropies (None: not at all) by the second. Adds to gradients of the head's own.
    """


class Head(Protocol):
    """One kind of distribution over actions. Parameters are `[batch, size]`."""

    size: int
    takes_masks: bool

    def noise(self, count: int, random: torch.Generator) -> Tensor:
        """The chance in so many actions, `[count, size]`, drawn on the CPU wherever they are made:
        so it is the same for every device."""

    def draw(
        self, parameters: Tensor, masks: Tensor | None, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Actions and their log-probabilities."""

    def best(self, parameters: Tensor, masks: Tensor | None) -> Tensor:
        """The most probable actions."""

    def judge(self, parameters: Tensor, actions: Tensor, masks: Tensor | None) -> Judged:
        """Without autograd: derivatives of so few operations are as quickly written down."""

    def to_env(self, actions: Array) -> Array:
        """Actions as the environment takes them."""


class Categorical(nn.Module):
    """One choice among several; those that a mask forbids have no probability."""

    takes_masks = True

    def __init__(self, count: int, first: int, dtype: Any) -> None:
        super().__init__()
        self.size, self._first, self._dtype = count, first, dtype

    def noise(self, count: int, random: torch.Generator) -> Tensor:
        return _clocks(count, self.size, random)

    def draw(
        self, parameters: Tensor, masks: Tensor | None, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        log_probs = _log_probs(parameters, masks)
        actions = _drawn(log_probs, noise)
        return actions, log_probs.gather(-1, actions[:, None])[:, 0]

    def best(self, parameters: Tensor, masks: Tensor | None) -> Tensor:
        return _log_probs(parameters, masks).argmax(-1)

    @torch.no_grad()
    def judge(self, parameters: Tensor, actions: Tensor, masks: Tensor | None) -> Judged:
        log_probs, chosen = _log_probs(parameters, masks), actions[:, None]
        return Judged(
            log_probs.gather(-1, chosen)[:, 0],
            lambda: _entropy(log_probs),
            lambda push, spread: _slope(log_probs, chosen, push, spread),
        )

    def to_env(self, actions: Array) -> Array:
        return (actions + self._first).astype(self._dtype, copy=False)


class MultiCategorical(nn.Module):
    """Several choices at a time, drawn independently of each other."""

    takes_masks = True

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__()
        self._counts, self._space = space.nvec.reshape(-1).tolist(), space
        self.size = sum(self._counts)

    def _each(self, parameters: Tensor, masks: Tensor | None) -> list[Tensor]:
        logits = parameters.split(self._counts, -1)
        if masks is None:
            return [_log_probs(one, None) for one in logits]
        return list(map(_log_probs, logits, masks.split(self._counts, -1)))

    def noise(self, count: int, random: torch.Generator) -> Tensor:
        return _clocks(count, self.size, random)

    def draw(
        self, parameters: Tensor, masks: Tensor | None, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        each = self._each(parameters, masks)
        actions = torch.stack(list(map(_drawn, each, noise.split(self._counts, -1))), -1)
        return actions, _gathered(each, actions)

    def best(self, parameters: Tensor, masks: Tensor | None) -> Tensor:
        return torch.stack([one.argmax(-1) for one in self._each(parameters, masks)], -1)

    @torch.no_grad()
    def judge(self, parameters: Tensor, actions: Tensor, masks: Tensor | None) -> Judged:
        each = self._each(parameters, masks)
        chosen = actions.split(1, -1)
        return Judged(
            _gathered(each, actions),
            lambda: torch.stack(list(map(_entropy, each))).sum(0),
            lambda push, spread: torch.cat(
                [_slope(*one, push, spread) for one in zip(each, chosen, strict=True)], -1
            ),
        )

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self._space.nvec.shape)
        return (shaped + self._space.start).astype(self._space.dtype, copy=False)


class Bernoulli(nn.Module):
    """Several switches."""

    takes_masks = False

    def __init__(self, space: spaces.MultiBinary) -> None:
        super().__init__()
        self._space, self.size = space, int(np.prod(space.shape))

    def noise(self, count: int, random: torch.Generator) -> Tensor:
        return torch.rand((count, self.size), generator=random)

    def draw(
        self, parameters: Tensor, masks: Tensor | None, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        actions = (noise < parameters.sigmoid()).long()
        return actions, self.judge(parameters, actions, masks).log_probs

    def best(self, parameters: Tensor, masks: Tensor | None) -> Tensor:
        return (parameters > 0).long()

    @torch.no_grad()
    def judge(self, parameters: Tensor, actions: Tensor, masks: Tensor | None) -> Judged:
        yes, no = nn.functional.logsigmoid(parameters), nn.functional.logsigmoid(-parameters)
        on = yes.exp()

        def slope(push: Tensor, spread: Tensor | None) -> Tensor:
            found = push[:, None] * (actions - on)
            return found if spread is None else found - spread[:, None] * parameters * on * (1 - on)

        return Judged(
            torch.where(actions.bool(), yes, no).sum(-1),
            lambda: -(on * yes + no.exp() * no).sum(-1),
            slope,
        )

    def to_env(self, actions: Array) -> Array:
        return actions.reshape(len(actions), *self._space.shape).astype(self._space.dtype)


class Gaussian(nn.Module):
    """Continuous actions around a mean, with a spread that is learnt and the same everywhere.

    What lies beyond the bounds is clipped for the environment, and recorded as it was drawn.
    """

    takes_masks = False

    def __init__(self, space: spaces.Box, log_std: float = 0.0) -> None:
        super().__init__()
        self._space, self.size = space, int(np.prod(space.shape))
        self.log_std = nn.Parameter(torch.full((self.size,), log_std))

    def noise(self, count: int, random: torch.Generator) -> Tensor:
        return torch.randn((count, self.size), generator=random)

    def draw(
        self, parameters: Tensor, masks: Tensor | None, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        actions = parameters + noise * self.log_std.exp()
        return actions, self._log_probs(parameters, actions)

    def _log_probs(self, means: Tensor, actions: Tensor) -> Tensor:
        scaled = (actions - means) * (-self.log_std).exp()
        return (-0.5 * scaled.square() - self.log_std - _HALF_LOG_2_PI).sum(-1)

    def best(self, parameters: Tensor, masks: Tensor | None) -> Tensor:
        return parameters

    @torch.no_grad()
    def judge(self, parameters: Tensor, actions: Tensor, masks: Tensor | None) -> Judged:
        def slope(push: Tensor, spread: Tensor | None) -> Tensor:
            if spread is not None:
                self._learn_spread(spread.sum())
            return self._slope(parameters, actions, push)

        log_probs = self._log_probs(parameters, actions)
        return Judged(log_probs, lambda: self._entropy().expand(len(actions)), slope)

    def _entropy(self) -> Tensor:
        return (0.5 + _HALF_LOG_2_PI + self.log_std.detach()).sum()

    @torch.no_grad()
    def _slope(self, means: Tensor, actions: Tensor, push: Tensor) -> Tensor:
        inverse = (-self.log_std).exp()
        scaled = (actions - means) * inverse
        self._learn_spread(push @ (scaled.square() - 1.0))
        return push[:, None] * scaled * inverse

    def _learn_spread(self, slope: Tensor) -> None:
        if self.log_std.grad is None:
            self.log_std.grad = torch.zeros_like(self.log_std)
        self.log_std.grad += slope

    def to_env(self, actions: Array) -> Array:
        shaped = actions.reshape(len(actions), *self._space.shape)
        return np.clip(shaped, self._space.low, self._space.high).astype(self._space.dtype)


class TanhGaussian(Gaussian):
    """A Gaussian squashed into the bounds; recorded before that, so that it can be undone exactly.

    Its entropy has no closed form: that of the Gaussian, and by how much squashing stretched the
    actions that were drawn, stand for it.
    """

    _log_scale: Tensor

    def __init__(self, space: spaces.Box, log_std: float = 0.0) -> None:
        super().__init__(space, log_std)
        if not space.is_bounded("both"):
            raise ConfigError(
                f"the action space {space} has no bounds to squash actions into. Use the clipped "
                "Gaussian (squash_actions=False), or give it bounds."
            )
        width = torch.as_tensor((space.high - space.low) / 2.0, dtype=torch.float32).reshape(-1)
        log_scale = torch.where(width > 0.0, width, 1.0).log()  # one with no width is always right
        self.register_buffer("_log_scale", log_scale, persistent=False)

    def _stretch(self, actions: Tensor) -> Tensor:
        # log |d tanh(u) / du| = 2 (log 2 - u - softplus(-2 u)), which never overflows
        slope = 2.0 * (math.log(2.0) - actions - nn.functional.softplus(-2.0 * actions))
        return (slope + self._log_scale).sum(-1)

    def _log_probs(self, means: Tensor, actions: Tensor) -> Tensor:
        return super()._log_probs(means, actions) - self._stretch(actions)

    @torch.no_grad()
    def judge(self, parameters: Tensor, actions: Tensor, masks: Tensor | None) -> Judged:
        def slope(push: Tensor, spread: Tensor | None) -> Tensor:
            found = self._slope(parameters, actions, push)  # what was squashed is fixed
            if spread is None:
                return found
            # With u = mean + noise * std: d log |d tanh(u) / du| = -2 tanh(u) du
            pull = spread[:, None] * -2.0 * actions.tanh()
            self._learn_spread(spread.sum() + (pull * (actions - parameters)).sum(0))
            return found + pull

        log_probs = self._log_probs(parameters, actions)
        return Judged(log_probs, lambda: self._entropy() + self._stretch(actions), slope)

    def to_env(self, actions: Array) -> Array:
        low, high = self._space.low, self._space.high
        shaped = np.tanh(actions.reshape(len(actions), *self._space.shape))
        scaled = low + (shaped + 1.0) * (high - low) / 2.0
        return np.clip(scaled, low, high).astype(self._space.dtype)  # rounding may go beyond


def head_of(space: spaces.Space[Any], *, squash: bool = False, log_std: float = 0.0) -> Any:
    """The head for an action space; ConfigError where there is none."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), int(space.start), space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space)
    if isinstance(space, spaces.MultiBinary):
        return Bernoulli(space)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return (TanhGaussian if squash else Gaussian)(space, log_std)
    raise ConfigError(
        f"the action space {space} is not supported: Discrete, MultiDiscrete, MultiBinary and Box "
        "of floats are. Wrap the environment so that it has one of these."
    )


def _log_probs(logits: Tensor, masks: Tensor | None) -> Tensor:
    if masks is not None:
        logits = torch.where(masks, logits, _NEVER)
    return logits.log_softmax(-1)


def _clocks(count: int, size: int, random: torch.Generator) -> Tensor:
    return torch.empty((count, size)).exponential_(generator=random)


def _drawn(log_probs: Tensor, clocks: Tensor) -> Tensor:
    """One of each row: the first of exponential clocks that run as fast as it is probable."""
    return (log_probs.exp() / clocks).argmax(-1)


def _entropy(log_probs: Tensor) -> Tensor:
    return -(log_probs.exp() * log_probs).sum(-1)


def _slope(log_probs: Tensor, chosen: Tensor, push: Tensor, spread: Tensor | None) -> Tensor:
    """With logits z and probabilities p:

    d log p[a] / d z = one_hot(a) - p            d entropy / d z = -p (log p + entropy)
    """
    push, probs = push[:, None], log_probs.exp()
    slope = (probs * -push).scatter_add_(-1, chosen, push)
    if spread is None:
        return slope
    entropy = -(probs * log_probs).sum(-1, keepdim=True)
    return slope - spread[:, None] * probs * (log_probs + entropy)


def _gathered(each: list[Tensor], actions: Tensor) -> Tensor:
    chosen = [one.gather(-1, actions[:, k : k + 1])[:, 0] for k, one in enumerate(each)]
    return torch.stack(chosen).sum(0)
