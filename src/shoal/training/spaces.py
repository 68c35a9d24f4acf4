"""Spaces as what JSON can hold, so that a checkpoint says by itself what it can act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.errors import ConfigError, shown
from shoal.layout import Array

Described = dict[str, Any]


def describe(space: spaces.Space[Any], part: str = "") -> Described:
    """A space in words and numbers; ConfigError where no network could read it anyway."""
    if isinstance(space, spaces.Dict):
        each = {key: describe(one, f"{part}[{key!r}]") for key, one in space.items()}
        return {"kind": "Dict", "spaces": each}
    if isinstance(space, spaces.Tuple):
        every = [describe(one, f"{part}[{k}]") for k, one in enumerate(space)]
        return {"kind": "Tuple", "spaces": every}
    if isinstance(space, spaces.Box):
        shape, dtype = list(space.shape), str(space.dtype)
        low, high = _numbers(space.low), _numbers(space.high)
        return {"kind": "Box", "shape": shape, "dtype": dtype, "low": low, "high": high}
    if isinstance(space, spaces.Discrete):
        dtype = str(space.dtype)
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": dtype}
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = space.nvec.tolist(), space.start.tolist()
        return {"kind": "MultiDiscrete", "nvec": nvec, "start": start, "dtype": str(space.dtype)}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "n": list(space.shape)}
    raise ConfigError(
        f"the space {shown(space)}{f' (part {part})' if part else ''} is not supported for "
        "training: Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these are. "
        "Wrap the environment so that it has one of them."
    )


def space_of(described: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that was described."""
    kind = described["kind"]
    if kind == "Dict":
        return spaces.Dict({key: space_of(one) for key, one in described["spaces"].items()})
    if kind == "Tuple":
        return spaces.Tuple([space_of(one) for one in described["spaces"]])
    if kind == "Box":
        shape, dtype = tuple(described["shape"]), np.dtype(described["dtype"])
        low, high = (np.broadcast_to(np.array(described[k], dtype), shape) for k in ("low", "high"))
        return spaces.Box(low, high, shape, dtype.type)
    if kind == "Discrete":
        dtype = np.dtype(described["dtype"])
        return spaces.Discrete(described["n"], start=described["start"], dtype=dtype.type)
    if kind == "MultiDiscrete":
        dtype = np.dtype(described["dtype"])
        return spaces.MultiDiscrete(described["nvec"], dtype.type, start=described["start"])
    return spaces.MultiBinary(described["n"])


def _numbers(array: Array) -> Any:
    """All of them; or, where they are the same, the one."""
    if array.size and (array == array.flat[0]).all():
        return array.flat[0].item()
    return array.tolist()
