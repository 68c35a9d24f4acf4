"""One run seed makes every seed of a run: distinct, stable, the same on every backend.

The seed of an environment is a pure function of (run seed, env id, restart); nothing here keeps
state. Evaluation has a stream of its own.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from shoal.errors import ContractError, shown

Seed = int | None

_RESTARTS, _EVALUATION = 1, 2


def env_seed(run_seed: int, env_id: int, restart: int = 0) -> int:
    """The seed of one environment: Gymnasium's `run_seed + env_id`, and after restarts a hash.

    Hashed seeds are 62 bits wide with the highest bit set, so that they collide neither with each
    other in practice nor with any `run_seed + env_id`.
    """
    if restart == 0:
        return run_seed + env_id
    return _hashed(run_seed, _RESTARTS, env_id, restart)


def evaluation_seed(run_seed: int, env_id: int) -> int:
    """The seed of an evaluation environment, from a stream that training never draws on."""
    return _hashed(run_seed, _EVALUATION, env_id)


def _hashed(run_seed: int, *key: int) -> int:
    words = np.random.SeedSequence(run_seed, spawn_key=key).generate_state(1, np.uint64)
    return (int(words[0]) >> 2) | (1 << 61)


def seeds_of(seed: Any, count: int, first_id: int = 0) -> list[Seed]:
    """One seed per environment from what a user may pass: nothing, an integer, or a list."""
    if seed is None:
        return [None] * count
    if isinstance(seed, str | bytes) or np.ndim(seed) == 0:
        start = _integer(seed)
        return [env_seed(start, first_id + i) for i in range(count)]
    if len(seed) != count:
        raise ContractError(
            f"If seeds are passed as a list the length must match num_envs={count} "
            f"but got length={len(seed)}."
        )
    return [None if one is None else _integer(one) for one in seed]


def _integer(seed: object) -> int:
    try:
        value = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        raise ContractError(
            f"A seed must be a whole number, got {shown(seed)} ({type(seed).__name__})."
        ) from None
    if value < 0:
        raise ContractError(f"A seed must not be negative, got {value}.")
    return value
