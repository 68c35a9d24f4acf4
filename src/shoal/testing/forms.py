"""The shapes a counting world can take: what it shows (observations) and what it hears (actions).

Every observation form but ``"discrete"`` carries the whole record, so a row that reached the
wrong place can be recognised; ``"discrete"`` carries a checksum of it.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import Space, spaces

ObservationForm = Literal["vector", "dict", "nested", "text", "mixed", "pixels", "discrete"]
ActionForm = Literal["discrete", "box", "multidiscrete", "dict"]

_LIMIT = 2**62
_PICTURE = (32, 32, 3)
_DISCRETE = spaces.Discrete(2**31 - 1, start=-1000)


class CountingRecord(NamedTuple):
    """Where an observation was made, and after which actions."""

    seed: int
    """The last seed given to ``reset``; -1 before any was."""
    tag: int
    """Which environment this is, as its maker numbered it."""
    agent: int
    """Always 0: a single agent."""
    episode: int
    """Counts the resets; 0 after one with a seed."""
    step: int
    """Steps taken in this episode; 0 after a reset."""
    task: int
    """``options["task"]`` of the reset that began this episode; 0 without one."""
    draw: int
    """A number drawn from the environment's own generator at this very step."""
    heard: int
    """A checksum of all actions received in this episode, in order."""


def decode(observation: Any) -> CountingRecord:
    """The record in one observation, or in one row of a batch; any form but ``"discrete"``."""
    if isinstance(observation, str):
        return CountingRecord(*map(int, observation.split(",")))
    if isinstance(observation, Mapping):
        holder = observation if "record" in observation else observation["outer"][0]
        return decode(holder["record"])
    numbers = np.asarray(observation)
    if numbers.dtype == np.uint8:
        numbers = numbers.ravel()[: 8 * len(CountingRecord._fields)].view(np.int64)
    return CountingRecord(*numbers.tolist())


def _vector_space() -> spaces.Box:
    return spaces.Box(-_LIMIT, _LIMIT, (len(CountingRecord._fields),), np.int64)


def _level_space() -> spaces.Discrete:
    return spaces.Discrete(64, start=-7)


def _floats(*shape: int, dtype: type[np.floating[Any]] = np.float32) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, dtype)


def _vector(record: CountingRecord) -> np.ndarray[Any, Any]:
    return np.array(record, np.int64)


def _level(record: CountingRecord) -> np.int64:
    return np.int64(record.step % 64 - 7)


def _bits(record: CountingRecord, count: int) -> np.ndarray[Any, Any]:
    return np.array([record.step >> bit & 1 for bit in range(count)], np.int8)


def _dict_space() -> spaces.Dict:
    return spaces.Dict(
        {
            "record": _vector_space(),
            "half": _floats(3, dtype=np.float16),
            "bytes": spaces.Box(0, 255, (2, 3), np.uint8),
            "flags": spaces.MultiBinary(6),
            "switches": spaces.Box(0, 1, (4,), np.bool_),
            "level": _level_space(),
            "dials": spaces.MultiDiscrete([5, 7]),
            "scale": _floats(dtype=np.float64),
        }
    )


def _dict(record: CountingRecord) -> dict[str, Any]:
    return {
        "record": _vector(record),
        "half": np.array([record.step, record.episode % 2048, record.tag % 2048], np.float16),
        "bytes": np.arange(record.step, record.step + 6).astype(np.uint8).reshape(2, 3),
        "flags": _bits(record, 6),
        "switches": _bits(record, 4).astype(np.bool_),
        "level": _level(record),
        "dials": np.array([record.step % 5, record.tag % 7], np.int64),
        "scale": np.array(record.draw / 2**31, np.float64),
    }


def _nested_space() -> spaces.Dict:
    inner = spaces.Dict({"record": _vector_space(), "bits": spaces.MultiBinary(4)})
    return spaces.Dict({"outer": spaces.Tuple((inner, _floats(2))), "plain": _floats(2, 2)})


def _nested(record: CountingRecord) -> dict[str, Any]:
    inner = {"record": _vector(record), "bits": _bits(record, 4)}
    return {
        "outer": (inner, np.array([record.step, record.tag], np.float32)),
        "plain": np.full((2, 2), record.step, np.float32),
    }


def _text_space() -> spaces.Text:
    return spaces.Text(max_length=200, charset="0123456789-,")


def _text(record: CountingRecord) -> str:
    return ",".join(map(str, record))


def _mixed_space() -> spaces.Dict:
    return spaces.Dict(
        {
            "record": _vector_space(),
            "level": _level_space(),
            "note": _text_space(),
            "trail": spaces.Sequence(_floats(2)),
            "map": spaces.Graph(_floats(2), spaces.Discrete(4)),
        }
    )


def _mixed(record: CountingRecord) -> dict[str, Any]:
    nodes = np.full((2 + record.step % 3, 2), record.step, np.float32)
    links = np.array([[0, 1], [1, 0]], np.int32)
    trail = tuple(np.array([record.step, i], np.float32) for i in range(record.step % 4))
    return {
        "record": _vector(record),
        "level": _level(record),
        "note": _text(record),
        "trail": trail,
        "map": spaces.GraphInstance(nodes, np.array([record.step % 4, 3], np.int64), links),
    }


def _pixels_space() -> spaces.Box:
    return spaces.Box(0, 255, _PICTURE, np.uint8)


def _pixels(record: CountingRecord) -> np.ndarray[Any, Any]:
    picture = np.full(_PICTURE, record.step * 7 % 256, np.uint8)
    code = np.frombuffer(_vector(record).tobytes(), np.uint8)
    picture.reshape(-1)[: code.size] = code
    return picture


def _discrete_space() -> spaces.Discrete:
    return spaces.Discrete(int(_DISCRETE.n), start=int(_DISCRETE.start))


def _discrete(record: CountingRecord) -> np.int64:
    return np.int64(zlib.crc32(_vector(record).tobytes()) % int(_DISCRETE.n) + _DISCRETE.start)


OBSERVATIONS: dict[str, tuple[Callable[[], Space[Any]], Callable[[CountingRecord], Any]]] = {
    "vector": (_vector_space, _vector),
    "dict": (_dict_space, _dict),
    "nested": (_nested_space, _nested),
    "text": (_text_space, _text),
    "mixed": (_mixed_space, _mixed),
    "pixels": (_pixels_space, _pixels),
    "discrete": (_discrete_space, _discrete),
}

ACTIONS: dict[str, Callable[[], Space[Any]]] = {
    "discrete": lambda: spaces.Discrete(7),
    "box": lambda: spaces.Box(-1, 1, (3,), np.float32),
    "multidiscrete": lambda: spaces.MultiDiscrete([3, 5, 2]),
    "dict": lambda: spaces.Dict(
        {
            "move": spaces.Discrete(5, start=1),
            "push": spaces.Box(-1, 1, (2,), np.float32),
            "flags": spaces.MultiBinary(3),
        }
    ),
}


def action_numbers(space: Space[Any], action: Any) -> list[float]:
    """The action as plain numbers, after the cast to the space's dtypes that any vector env makes.

    Raises ``ValueError`` or ``KeyError`` when the action does not have the space's structure.
    """
    if isinstance(space, spaces.Dict):
        return [x for key, sub in space.items() for x in action_numbers(sub, action[key])]
    values = np.asarray(action, dtype=space.dtype)
    if values.shape != space.shape:
        raise ValueError(f"action has the wrong shape: expected {space.shape}, got {values.shape}")
    return [float(x) for x in values.ravel().tolist()]


def reward_of(space: Space[Any], action: Any, *, seed: int, step: int) -> float:
    """What a counting world pays for this action at this step: the same bits everywhere.

    ``fsum`` rounds once, so the order of summation cannot matter; the other terms are dyadic.
    """
    weighted = ((i + 1) * x for i, x in enumerate(action_numbers(space, action)))
    return math.fsum(weighted) + step / 1024 + seed % 1024 / 2**20
