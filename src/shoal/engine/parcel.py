"""Parcels: how factories and their arguments reach the workers, by cloudpickle.

Functions and classes of the user's script travel by value, so that no worker ever imports it.
Arrays and bytes over a megabyte are put into shared memory, once for all workers: an array comes
out as a read-only view of it, bytes as one copy per worker.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np

from shoal.engine.memory import Memory
from shoal.errors import ConfigError, shown

LARGE_BYTES = 1 << 20
_ALIGN_BYTES = 64


class Store:
    """Large read-only data of a pool, in shared memory; the same object is stored once."""

    def __init__(self) -> None:
        self.memory = Memory.create()
        self._spans: dict[tuple[int, int], tuple[int, int]] = {}
        self._kept: list[memoryview] = []
        self._size = 0

    def add(self, data: memoryview) -> tuple[int, int]:
        """Offset and length of this data in the store."""
        address = np.frombuffer(data, dtype=np.uint8).ctypes.data
        key = (address, data.nbytes)
        if key not in self._spans:
            offset = -(-self._size // _ALIGN_BYTES) * _ALIGN_BYTES
            self._size = offset + data.nbytes
            self.memory.resize(self._size)
            self.memory.view()[offset : self._size] = data
            self._spans[key] = (offset, data.nbytes)
            self._kept.append(data)
        return self._spans[key]


@dataclass(frozen=True, slots=True)
class Parcel:
    """Pickled objects, and where their large parts lie in the store."""

    payload: bytes
    spans: tuple[tuple[int, int], ...] = ()


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, store: Store) -> None:
        self.spans: list[tuple[int, int]] = []
        self._store = store
        super().__init__(file, protocol=5, buffer_callback=self._keep_in_band)

    def _keep_in_band(self, buffer: pickle.PickleBuffer) -> bool:
        """False takes the buffer out of the pickle (protocol 5): it is in the store instead."""
        raw = buffer.raw()
        if raw.nbytes <= LARGE_BYTES:
            return True
        self.spans.append(self._store.add(raw))
        return False

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is bytes and len(obj) > LARGE_BYTES:
            return self._store.add(memoryview(obj))
        return None


class _Unpacker(pickle.Unpickler):
    def __init__(self, parcel: Parcel, data: memoryview | None) -> None:
        self._data = data
        self._bytes: dict[tuple[int, int], bytes] = {}
        buffers = [data[at : at + size] for at, size in parcel.spans] if data else []
        super().__init__(io.BytesIO(parcel.payload), buffers=buffers)

    def persistent_load(self, pid: Any) -> bytes:
        assert self._data is not None
        if pid not in self._bytes:
            at, size = pid
            self._bytes[pid] = bytes(self._data[at : at + size])
        return self._bytes[pid]


def pack(obj: Any, store: Store) -> Parcel:
    """Make a parcel; ConfigError naming the culprit where something cannot be pickled."""
    file = io.BytesIO()
    packer = _Packer(file, store)
    try:
        packer.dump(obj)
    except Exception as problem:
        raise ConfigError(
            f"The environment factory cannot be sent to a worker: {_culprit(obj)}. "
            "Create such things inside the factory, or use start_method='fork', or "
            "backend='serial' or 'thread'."
        ) from problem
    return Parcel(file.getvalue(), tuple(packer.spans))


def unpack(parcel: Parcel, data: memoryview | None) -> Any:
    """What was packed; `data` is the store, mapped."""
    return _Unpacker(parcel, data).load()


def _culprit(obj: Any) -> str:
    """Follow what cannot be pickled down to the smallest part that cannot."""
    where = "the factory"
    for _ in range(20):
        bad = next(((name, part) for name, part in _parts(obj) if not _pickles(part)), None)
        if bad is None:
            break
        where, obj = f"{bad[0]} of {shown(obj, 80)}", bad[1]
    kind = f"{type(obj).__module__}.{type(obj).__qualname__}"
    return f"{where} is a {kind} ({shown(obj, 60)}), which cannot be pickled"


def _pickles(obj: Any) -> bool:
    try:
        cloudpickle.dumps(obj)
    except Exception:
        return False
    return True


def _parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """The named parts of a function, a partial, a container or an instance."""
    if isinstance(obj, functools.partial):
        yield "the function", obj.func
        yield from ((f"argument {k}", value) for k, value in enumerate(obj.args))
        yield from ((f"argument {key!r}", value) for key, value in obj.keywords.items())
    elif isinstance(obj, types.FunctionType):
        yield from _function_parts(obj)
    elif isinstance(obj, types.MethodType):
        yield "the instance", obj.__self__
    elif isinstance(obj, dict):
        yield from ((f"entry {key!r}", value) for key, value in obj.items())
    elif isinstance(obj, (list, tuple)):
        yield from ((f"element {k}", value) for k, value in enumerate(obj))
    elif hasattr(obj, "__dict__") and not isinstance(obj, type | types.ModuleType):
        yield from ((f"attribute {key!r}", value) for key, value in vars(obj).items())


def _function_parts(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a variable that has no value yet
            yield f"closure variable {name!r}", cell.cell_contents
    known = function.__globals__
    yield from ((f"global {name!r}", known[name]) for name in _names(code) if name in known)
    yield from ((f"default {k}", value) for k, value in enumerate(function.__defaults__ or ()))
    keywords = function.__kwdefaults__ or {}
    yield from ((f"default {key!r}", value) for key, value in keywords.items())


def _names(code: types.CodeType) -> Iterator[str]:
    """Names that a function uses, and those used by functions written inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
