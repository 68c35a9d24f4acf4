"""Networks of users: made and asked once, so that what they lack is told before all else begins."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.errors import ConfigError, shown

MakeNetwork = Callable[[spaces.Space[Any], int], nn.Module]
"""Makes a network from an observation space and the number of parameters that actions need."""

_SIZES = (2, 1)
"""Observations that it is asked about at once: with one alone, some axes cannot be told apart."""


def invite(make: MakeNetwork, space: spaces.Space[Any], num_parameters: int) -> nn.Module:
    """The network; ConfigError where this does not make one."""
    if isinstance(make, nn.Module):
        raise ConfigError(
            f"policy is a network, {shown(make)}; expected what makes one. Give its class, or a "
            "function, that takes the observation space and the number of parameters."
        )
    try:
        inspect.signature(make).bind(space, num_parameters)
    except TypeError as problem:
        raise ConfigError(
            f"policy is {shown(make)}, which cannot be called with the observation space and the "
            f"number of parameters ({problem}). Let it take these two."
        ) from problem
    except ValueError:  # some written in C have no signature
        pass
    network: object = make(space, num_parameters)
    if not isinstance(network, nn.Module):
        raise ConfigError(
            f"policy made {shown(network)}; expected a torch.nn.Module. Let it return one."
        )
    if not any(True for _ in network.parameters()):
        raise ConfigError(f"policy made {shown(network)}, which has no weights to learn.")
    return network


def check(
    network: nn.Module,
    space: spaces.Space[Any],
    num_parameters: int,
    batch: Callable[[list[Any]], Any],
) -> None:
    """See what the network returns; ConfigError where that is not what it should be.

    `batch` makes of some observations what the network is given.
    """
    memory = int(getattr(network, "state_size", 0))
    space = copy.deepcopy(space)  # nobody else's chance is drawn on
    space.seed(0)
    for size in _SIZES:
        state = [torch.zeros(size, memory)] if memory else []
        wanted = {"parameters": (size, num_parameters), "values": (size,)}
        wanted |= {"state": (size, memory)} if memory else {}
        found = _ask(network, batch([space.sample() for _ in range(size)]), state, wanted)
        _compare(network, found, wanted)


def _ask(network: nn.Module, seen: Any, state: list[Tensor], wanted: dict[str, Any]) -> object:
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            found: object = network(seen, *state)
    except Exception as problem:
        raise ConfigError(
            f"the policy's network {_name(network)} raised {type(problem).__name__} when it was "
            f"asked about {_shown(seen)}{' and a state' if state else ''}: {problem}. It is to "
            f"return {_listed(wanted)}."
        ) from problem
    return found


def _compare(network: nn.Module, found: object, wanted: dict[str, tuple[int, ...]]) -> None:
    each = found if isinstance(found, tuple | list) else [found]
    shapes = [tuple(one.shape) if isinstance(one, Tensor) else None for one in each]
    if isinstance(found, Tensor) or shapes != list(wanted.values()):
        told = ", ".join(_shown(one) for one in each)
        raise ConfigError(
            f"the policy's network {_name(network)} returned {told}; expected "
            f"{_listed(wanted)}. Let it return these, one after the other."
        )


def _name(network: nn.Module) -> str:
    return type(network).__name__


def _listed(wanted: dict[str, tuple[int, ...]]) -> str:
    *others, last = (f"{name} of shape {list(shape)}" for name, shape in wanted.items())
    return f"{', '.join(others)} and {last}"


def _shown(value: object) -> str:
    """A tensor by its shape, what holds tensors by theirs."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_shown(one)}" for key, one in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(_shown, value))
    return shown(value)
