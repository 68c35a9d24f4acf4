"""Heads: from what a network puts out to actions, their probabilities and their entropy.

Which head an action space has is decided here, once (`head_of`). A head says how many numbers it
needs for each environment (`size`); what the policy draws is recorded as it was drawn, and turned
into what the environment takes at the very end (`to_env`). Formulas hold for tensors and for arrays
alike; what they are given is of one kind, and autograd has no part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.algos.numbers import Numbers, add_at, library, like, log_sigmoid, log_softmax, pick
from shoal.errors import ConfigError
from shoal.layout import Array

_NEVER = -1e9
"""The logit of an action that is not possible."""
_HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)


class Judged(NamedTuple):
    """What a policy makes of actions. What is seldom wanted is found when it is asked for."""

    log_probs: Numbers
    entropy: Callable[[], Numbers]
    """Of the distribution that each action comes from."""
    slope: Callable[[Numbers, Numbers | None], Numbers]
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
        self, parameters: Numbers, masks: Numbers | None, noise: Numbers
    ) -> tuple[Numbers, Numbers]:
        """Actions and their log-probabilities."""

    def best(self, parameters: Numbers, masks: Numbers | None) -> Numbers:
        """The most probable actions."""

    def judge(self, parameters: Numbers, actions: Numbers, masks: Numbers | None) -> Judged:
        """Derivatives of so few operations are as quickly written down as found by autograd."""

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
        self, parameters: Numbers, masks: Numbers | None, noise: Numbers
    ) -> tuple[Numbers, Numbers]:
        log_probs = _log_probs(parameters, masks)
        actions = _drawn(log_probs, noise)
        return actions, pick(log_probs, actions)

    def best(self, parameters: Numbers, masks: Numbers | None) -> Numbers:
        return _log_probs(parameters, masks).argmax(-1)

    def judge(self, parameters: Numbers, actions: Numbers, masks: Numbers | None) -> Judged:
        log_probs = _log_probs(parameters, masks)
        return Judged(
            pick(log_probs, actions),
            lambda: _entropy(log_probs),
            lambda push, spread: _slope(log_probs, actions, push, spread),
        )

    def to_env(self, actions: Array) -> Array:
        return (actions + self._first).astype(self._dtype, copy=False)


class MultiCategorical(nn.Module):
    """Several choices at a time, drawn independently of each other."""

    takes_masks = True

    def __init__(self, space: spaces.MultiDiscrete) -> None:
        super().__init__()
        counts: list[int] = space.nvec.reshape(-1).tolist()
        self.size, self._space = sum(counts), space
        ends = np.cumsum(counts).tolist()
        self._parts = [slice(end - count, end) for count, end in zip(counts, ends, strict=True)]

    def _each(self, parameters: Numbers, masks: Numbers | None) -> list[Numbers]:
        return [
            _log_probs(parameters[:, part], None if masks is None else masks[:, part])
            for part in self._parts
        ]

    def noise(self, count: int, random: torch.Generator) -> Tensor:
        return _clocks(count, self.size, random)

    def draw(
        self, parameters: Numbers, masks: Numbers | None, noise: Numbers
    ) -> tuple[Numbers, Numbers]:
        each, xp = self._each(parameters, masks), library(parameters)
        drawn = [_drawn(one, noise[:, part]) for one, part in zip(each, self._parts, strict=True)]
        actions = xp.stack(drawn, -1)
        return actions, self._picked(each, actions)

    def _picked(self, each: list[Numbers], actions: Numbers) -> Numbers:
        return sum(pick(one, actions[:, k]) for k, one in enumerate(each))

    def best(self, parameters: Numbers, masks: Numbers | None) -> Numbers:
        most = [one.argmax(-1) for one in self._each(parameters, masks)]
        return library(parameters).stack(most, -1)

    def judge(self, parameters: Numbers, actions: Numbers, masks: Numbers | None) -> Judged:
        each, xp = self._each(parameters, masks), library(parameters)
        return Judged(
            self._picked(each, actions),
            lambda: sum(map(_entropy, each)),
            lambda push, spread: xp.concatenate(
                [_slope(one, actions[:, k], push, spread) for k, one in enumerate(each)], -1
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
        self, parameters: Numbers, masks: Numbers | None, noise: Numbers
    ) -> tuple[Numbers, Numbers]:
        xp = library(parameters)
        actions = xp.asarray(noise < xp.exp(log_sigmoid(parameters)), dtype=xp.int64)
        return actions, self.judge(parameters, actions, masks).log_probs

    def best(self, parameters: Numbers, masks: Numbers | None) -> Numbers:
        xp = library(parameters)
        return xp.asarray(parameters > 0, dtype=xp.int64)

    def judge(self, parameters: Numbers, actions: Numbers, masks: Numbers | None) -> Judged:
        xp = library(parameters)
        yes, no = log_sigmoid(parameters), log_sigmoid(-parameters)
        on = xp.exp(yes)

        def slope(push: Numbers, spread: Numbers | None) -> Numbers:
            found = push[:, None] * xp.where(actions == 1, 1.0 - on, -on)
            return found if spread is None else found - spread[:, None] * parameters * on * (1 - on)

        return Judged(
            xp.where(actions == 1, yes, no).sum(-1),
            lambda: -(on * yes + xp.exp(no) * no).sum(-1),
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
        self, parameters: Numbers, masks: Numbers | None, noise: Numbers
    ) -> tuple[Numbers, Numbers]:
        std = library(parameters).exp(like(parameters, self.log_std))
        actions = parameters + noise * std
        return actions, self._log_probs(parameters, actions)

    def _log_probs(self, means: Numbers, actions: Numbers) -> Numbers:
        log_std = like(means, self.log_std)
        scaled = (actions - means) * library(means).exp(-log_std)
        return (-0.5 * scaled * scaled - log_std - _HALF_LOG_2_PI).sum(-1)

    def best(self, parameters: Numbers, masks: Numbers | None) -> Numbers:
        return parameters

    def judge(self, parameters: Numbers, actions: Numbers, masks: Numbers | None) -> Judged:
        def slope(push: Numbers, spread: Numbers | None) -> Numbers:
            if spread is not None:
                self._learn_spread(spread.sum())
            return self._slope(parameters, actions, push)

        return Judged(
            self._log_probs(parameters, actions), lambda: self._entropy(parameters), slope
        )

    def _entropy(self, means: Numbers) -> Numbers:
        of_one = (0.5 + _HALF_LOG_2_PI + like(means, self.log_std)).sum()
        return library(means).broadcast_to(of_one, means.shape[:1])

    def _slope(self, means: Numbers, actions: Numbers, push: Numbers) -> Numbers:
        inverse = library(means).exp(-like(means, self.log_std))
        scaled = (actions - means) * inverse
        self._learn_spread(push @ (scaled * scaled - 1.0))
        return push[:, None] * scaled * inverse

    def _learn_spread(self, slope: Numbers) -> None:
        if self.log_std.grad is None:
            self.log_std.grad = torch.zeros_like(self.log_std)
        self.log_std.grad += torch.as_tensor(slope)

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

    def _stretch(self, actions: Numbers) -> Numbers:
        # log |d tanh(u) / du| = 2 (log 2 - u + log sigmoid(2 u)), which never overflows
        slope = 2.0 * (math.log(2.0) - actions + log_sigmoid(2.0 * actions))
        return (slope + like(actions, self._log_scale)).sum(-1)

    def _log_probs(self, means: Numbers, actions: Numbers) -> Numbers:
        return super()._log_probs(means, actions) - self._stretch(actions)

    def judge(self, parameters: Numbers, actions: Numbers, masks: Numbers | None) -> Judged:
        def slope(push: Numbers, spread: Numbers | None) -> Numbers:
            found = self._slope(parameters, actions, push)  # what was squashed is fixed
            if spread is None:
                return found
            # With u = mean + noise * std: d log |d tanh(u) / du| = -2 tanh(u) du
            pull = spread[:, None] * -2.0 * library(actions).tanh(actions)
            self._learn_spread(spread.sum() + (pull * (actions - parameters)).sum(0))
            return found + pull

        log_probs = self._log_probs(parameters, actions)
        return Judged(log_probs, lambda: self._entropy(actions) + self._stretch(actions), slope)

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


def _log_probs(logits: Numbers, masks: Numbers | None) -> Numbers:
    if masks is not None:
        logits = library(logits).where(masks, logits, _NEVER)
    return log_softmax(logits)


def _clocks(count: int, size: int, random: torch.Generator) -> Tensor:
    return torch.empty((count, size)).exponential_(generator=random)


def _drawn(log_probs: Numbers, clocks: Numbers) -> Numbers:
    """One of each row: the first of exponential clocks that run as fast as it is probable."""
    return (library(log_probs).exp(log_probs) / clocks).argmax(-1)


def _entropy(log_probs: Numbers) -> Numbers:
    return -(library(log_probs).exp(log_probs) * log_probs).sum(-1)


def _slope(log_probs: Numbers, chosen: Numbers, push: Numbers, spread: Numbers | None) -> Numbers:
    """With logits z and probabilities p:

    d log p[a] / d z = one_hot(a) - p            d entropy / d z = -p (log p + entropy)
    """
    probs = library(log_probs).exp(log_probs)
    slope = probs * -push[:, None]
    add_at(slope, chosen, push)
    if spread is None:
        return slope
    entropy = -(probs * log_probs).sum(-1)
    return slope - spread[:, None] * probs * (log_probs + entropy[:, None])
