"""Do factories arrive whole, with large data shared once, and is a culprit found?"""

from __future__ import annotations

import functools
import gc
import os
import pickle
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from shoal.engine.parcel import LARGE_BYTES, Parcel, Store, pack, unpack
from shoal.engine.registry import adopt, registered
from shoal.errors import ConfigError


@pytest.fixture(params=["linux", "portable"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store in either kind of shared memory."""
    if request.param == "portable":
        monkeypatch.setenv("SHOAL_PORTABLE", "1")
    one = Store()
    yield one
    one.memory.close()


def stored_bytes(store: Store) -> int:
    return os.fstat(store.memory.fd).st_size


def opened(parcel: Parcel, store: Store) -> Any:
    """What a worker gets: from a pickled parcel and a mapping it may only read."""
    data = store.memory.view(writable=False) if stored_bytes(store) else None
    return unpack(pickle.loads(pickle.dumps(parcel)), data)


def passed(obj: Any, store: Store) -> Any:
    return opened(pack(obj, store), store)


def in_script(source: str) -> types.ModuleType:
    """A module that no worker can import: the user's script."""
    module = types.ModuleType("__main__")
    exec(source, module.__dict__)
    return module


# --- functions and classes ---------------------------------------------------


def test_lambdas_closures_and_partials_arrive(store: Store) -> None:
    offset = 10
    factory = functools.partial(lambda a, b: a + b + offset, 1, b=2)
    assert passed(factory, store)() == 13


def test_functions_and_classes_of_a_script_travel_by_value(store: Store) -> None:
    script = in_script(
        "SCALE = 3\n"
        "class World:\n"
        "    def scaled(self, x): return x * SCALE\n"
        "def make(x): return World().scaled(x)\n"
    )
    parcel = pack(script.make, store)
    script.__dict__.clear()  # nothing may be looked up there any more
    assert unpack(parcel, None)(5) == 15


def test_functions_of_a_module_travel_by_name(store: Store) -> None:
    assert passed(os.path.join, store) is os.path.join
    assert len(pack(os.path.join, store).payload) < 100


# --- large data --------------------------------------------------------------


def large(dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Twice as large as it takes, each element another number (as far as the dtype has them)."""
    return np.arange(2 * LARGE_BYTES // np.dtype(dtype).itemsize).astype(dtype)


def test_a_large_array_is_a_read_only_view_of_the_store(store: Store) -> None:
    array = large()
    parcel = pack({"rom": array}, store)
    assert len(parcel.payload) < 1000
    assert stored_bytes(store) == array.nbytes
    data = store.memory.view(writable=False)
    got = unpack(parcel, data)["rom"]
    assert np.array_equal(got, array)
    assert got.dtype == array.dtype
    assert not got.flags.writeable
    assert np.shares_memory(got, np.frombuffer(data, np.uint8))


def test_what_is_at_the_same_place_in_the_store_is_seen_by_all_readers(store: Store) -> None:
    """Zero copy: two workers map the same bytes."""
    parcel = pack(large(np.uint8), store)
    one, other = (unpack(parcel, store.memory.view(writable=False)) for _ in range(2))
    store.memory.view()[5] = 99
    assert one[5] == other[5] == 99


def test_a_small_array_stays_in_the_parcel_and_is_writable(store: Store) -> None:
    got = passed(np.arange(5), store)
    assert stored_bytes(store) == 0
    got[0] = 7
    assert got.tolist() == [7, 1, 2, 3, 4]


def test_the_limit_itself_is_small(store: Store) -> None:
    pack([np.zeros(LARGE_BYTES, np.uint8), bytes(LARGE_BYTES)], store)
    assert stored_bytes(store) == 0
    pack(np.zeros(LARGE_BYTES + 1, np.uint8), store)
    assert stored_bytes(store) == LARGE_BYTES + 1


def test_large_bytes_go_through_the_store(store: Store) -> None:
    rom = os.urandom(LARGE_BYTES + 3)
    parcel = pack({"rom": rom}, store)
    assert len(parcel.payload) < 1000
    got = unpack(parcel, store.memory.view(writable=False))
    assert got == {"rom": rom}
    assert type(got["rom"]) is bytes


def test_an_array_that_is_referred_to_twice_is_stored_once(store: Store) -> None:
    array = large()
    one, other = passed([array, {"again": array}], store)
    assert other["again"] is one
    assert stored_bytes(store) == array.nbytes


def test_two_parcels_with_the_same_array_store_it_once(store: Store) -> None:
    """A list of factories, one parcel for each worker."""
    array, rom = large(), bytes(LARGE_BYTES + 64)
    parcels = [pack(functools.partial(max, array, rom), store) for _ in range(3)]
    assert stored_bytes(store) == array.nbytes + len(rom)
    assert len({parcel.spans for parcel in parcels}) == 1


def test_the_same_bytes_in_many_factories_are_one_object_in_a_worker(store: Store) -> None:
    """64 environments of a worker must not hold 64 copies of a ROM."""
    rom = os.urandom(LARGE_BYTES + 1)
    made = [factory() for factory in passed([closure_over(rom) for _ in range(3)], store)]
    assert made[0] == rom
    assert made[0] is made[1] is made[2]
    assert stored_bytes(store) == len(rom)


def test_several_large_arrays_keep_apart_and_aligned(store: Store) -> None:
    arrays = [large(np.uint8)[3 : LARGE_BYTES + 9], large(np.float32)]
    for got, array in zip(passed(arrays, store), arrays, strict=True):
        assert np.array_equal(got, array)
        assert got.ctypes.data % 64 == 0


def test_data_that_is_gone_is_never_mistaken_for_new_data_at_its_address(store: Store) -> None:
    parcels = []
    for k in range(4):  # each array dies before the next is made, perhaps at the same place
        parcels.append(pack(np.full(LARGE_BYTES + 8, k, np.uint8), store))
        gc.collect()
    data = store.memory.view(writable=False)
    assert [int(unpack(parcel, data)[0]) for parcel in parcels] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(large().reshape(2, -1)),
        np.concatenate([large(), large()]).reshape(-1, 4)[:, ::2],
        large(">f4"),
        np.ones(LARGE_BYTES // 8, [("a", "i4"), ("b", "f8")]),
        large()[::-1],
    ],
    ids=["fortran", "strided", "big-endian", "records", "reversed"],
)
def test_large_arrays_of_any_form_arrive_equal(array: np.ndarray[Any, Any], store: Store) -> None:
    got = passed(array, store)
    assert got.dtype == array.dtype
    assert np.array_equal(got, array)
    assert stored_bytes(store) >= array.nbytes


def test_a_large_array_inside_a_closure_is_found(store: Store) -> None:
    table = large()
    assert passed(lambda k: float(table[k]), store)(7) == 7.0
    assert stored_bytes(store) == table.nbytes


def test_a_parcel_without_large_data_needs_no_store() -> None:
    store = Store()
    parcel = pack([1, 2], store)
    store.memory.close()
    assert parcel == Parcel(parcel.payload, ())
    assert unpack(parcel, None) == [1, 2]


# --- what cannot be pickled --------------------------------------------------

LOCK = threading.Lock()


class Holder:
    def __init__(self, value: Any) -> None:
        self.value = value

    def make(self) -> Any:
        return self.value


def closure_over(handle: Any) -> Callable[[], Any]:
    return lambda: handle


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        (closure_over(LOCK), ["closure variable 'handle'", "_thread.lock"]),
        (functools.partial(max, LOCK), ["argument 0", "_thread.lock"]),
        (functools.partial(max, key=LOCK), ["argument 'key'", "_thread.lock"]),
        (Holder(LOCK), ["attribute 'value'", "_thread.lock"]),
        (Holder(LOCK).make, ["attribute 'value' of", "Holder", "_thread.lock"]),
        ({"a": [1, LOCK]}, ["element 1 of [1, <", "_thread.lock"]),
        (closure_over(sys._getframe()), ["closure variable 'handle'", "frame"]),
        (
            functools.partial(closure_over(Holder([LOCK])), 3),
            ["element 0 of [<", "_thread.lock"],
        ),
    ],
    ids=["closure", "argument", "keyword", "attribute", "method", "nested", "frame", "deep"],
)
def test_the_object_that_cannot_be_pickled_is_named_with_the_way_to_it(
    factory: Any, said: list[str], store: Store
) -> None:
    with pytest.raises(ConfigError) as caught:
        pack(factory, store)
    for text in [*said, "cannot be pickled", "inside the factory"]:
        assert text in str(caught.value)
    assert isinstance(caught.value.__cause__, Exception)


def test_a_global_of_a_script_that_cannot_be_pickled_is_named(store: Store) -> None:
    script = in_script(
        "import threading\n"
        "HANDLE = threading.Lock()\n"
        "def direct(): return HANDLE\n"
        "def inside(): return (lambda: HANDLE)()\n"
    )
    for factory in (script.direct, script.inside):
        with pytest.raises(ConfigError, match=r"global 'HANDLE'.*_thread\.lock"):
            pack(factory, store)


def test_a_default_that_cannot_be_pickled_is_named(store: Store) -> None:
    script = in_script(
        "import threading\n"
        "def make(handle=threading.Lock()): return handle\n"
        "def keyword(*, handle=threading.Lock()): return handle\n"
    )
    with pytest.raises(ConfigError, match=r"default 0.*_thread\.lock"):
        pack(script.make, store)
    with pytest.raises(ConfigError, match=r"default 'handle'.*_thread\.lock"):
        pack(script.keyword, store)


def test_a_closure_variable_without_a_value_does_not_hide_the_culprit(store: Store) -> None:
    def outer() -> Callable[[], Any]:
        handle = LOCK
        factory = lambda: (absent, handle)  # noqa: E731
        if handle is None:
            absent = 1
        return factory

    with pytest.raises(ConfigError, match=r"closure variable 'handle'.*_thread\.lock"):
        pack(outer(), store)


def test_an_object_that_refers_to_itself_is_searched_and_left(store: Store) -> None:
    holder = Holder(None)
    holder.value = [holder, LOCK]
    with pytest.raises(ConfigError, match="cannot be pickled"):
        pack(holder, store)


def test_an_object_whose_pickling_raises_is_the_culprit(store: Store) -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise RuntimeError("I stay here")

    with pytest.raises(ConfigError, match=r"Stubborn.*cannot be pickled") as caught:
        pack(closure_over(Stubborn()), store)
    assert "I stay here" in str(caught.value.__cause__)


# --- registered environments -------------------------------------------------


class Tiny(gymnasium.Env[Any, Any]):
    observation_space = action_space = spaces.Discrete(2)


@pytest.fixture
def own_ids() -> Iterator[list[str]]:
    """Two environments registered here, one of which cannot travel."""
    ids = ["ShoalParcel/Tiny-v0", "ShoalParcel/Locked-v0"]
    gymnasium.register(ids[0], entry_point=lambda **kwargs: Tiny())
    gymnasium.register(ids[1], entry_point=closure_over(LOCK))
    yield ids
    for name in ids:
        gymnasium.registry.pop(name, None)


def test_what_was_registered_in_the_caller_becomes_known(own_ids: list[str], store: Store) -> None:
    added = opened(registered(store), store)
    assert own_ids[0] in added
    assert own_ids[1] not in added, "it cannot travel, and must not keep the others from it"
    assert added["CartPole-v1"] == gymnasium.registry["CartPole-v1"]
    del gymnasium.registry[own_ids[0]]
    adopt(added)
    env = gymnasium.make(own_ids[0], disable_env_checker=True)
    assert type(env.unwrapped).__name__ == "Tiny"


def test_the_callers_registration_counts(own_ids: list[str], store: Store) -> None:
    mine = gymnasium.registry[own_ids[0]]
    sent = opened(registered(store), store)
    adopt(sent)
    assert gymnasium.registry[own_ids[0]] is sent[own_ids[0]]
    gymnasium.registry[own_ids[0]] = mine
