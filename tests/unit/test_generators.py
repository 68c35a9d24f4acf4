"""Is the state of a generator that was noted the one it had?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.engine import generators
from shoal.engine.rows import GENERATOR_BYTES

KINDS = ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"]


def holder_of(kind: str = "PCG64", seed: int = 3) -> Any:
    return SimpleNamespace(np_random=np.random.Generator(getattr(np.random, kind)(seed)))


def row() -> memoryview:
    return memoryview(bytearray(GENERATOR_BYTES))


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_state_continues_as_the_generator_did(kind: str) -> None:
    holder, place = holder_of(kind), row()
    recorder = generators.Recorder(holder, place)
    for draws in range(7):  # odd ones leave half a number behind
        holder.np_random.integers(100, size=draws, dtype=np.int32)
        other = recorder.note()
        expected = holder.np_random.integers(2**31, size=5, dtype=np.int32)
        twin = holder_of(kind, seed=99)
        generators.put_back(twin, generators.state_of(bytes(place), other), None)
        assert (twin.np_random.integers(2**31, size=5, dtype=np.int32) == expected).all()


def test_numpys_default_is_copied_from_where_it_lies() -> None:
    """Should NumPy arrange it differently, this says so; the engine then asks NumPy."""
    assert generators._raw_state(holder_of().np_random) is not None


def test_another_generator_is_noticed() -> None:
    holder, place = holder_of(seed=1), row()
    recorder = generators.Recorder(holder, place)
    recorder.note()
    holder.np_random = np.random.default_rng(2)
    recorder.note()
    state = generators.state_of(bytes(place), None)
    assert state == np.random.default_rng(2).bit_generator.state


@pytest.mark.parametrize("value", [None, 5, np.random.RandomState(0)])
def test_what_is_no_generator_has_no_state(value: Any) -> None:
    place = row()
    assert generators.Recorder(SimpleNamespace(np_random=value), place).note() is None
    assert generators.state_of(bytes(place), None) is None
    assert generators.take(SimpleNamespace()) is None


def test_a_seeded_reset_forgets_what_was_before() -> None:
    place = row()
    recorder = generators.Recorder(holder_of(), place)
    recorder.note()
    recorder.forget()
    assert generators.state_of(bytes(place), None) is None


def test_the_seed_is_put_back_with_the_state() -> None:
    holder = holder_of()
    holder._np_random_seed = 1
    generators.put_back(holder, np.random.default_rng(8).bit_generator.state, 8)
    assert holder._np_random_seed == 8
    assert holder.np_random.random() == np.random.default_rng(8).random()
