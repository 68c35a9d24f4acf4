"""Layout: a space seen as a flat list of named leaves, each an array or an object.

Leaves stay separate arrays, so a Dict observation stays a Dict and no byte is ever reinterpreted.
What Gymnasium batches into an array lives in rows; everything else (Text, Sequence, Graph, OneOf,
custom spaces) is an *object leaf*, which travels beside the rows. Both mix freely in one Dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from shoal.errors import ContractError, shown

Array = NDArray[Any]
Path = tuple[str | int, ...]

# How Gymnasium itself batches decides what may live in rows, so that a user's own registration
# for a class of spaces is honoured.
_BATCHED_AS_ARRAY = concatenate.dispatch(spaces.Box)
_BATCHED_AS_DICT = concatenate.dispatch(spaces.Dict)
_BATCHED_AS_TUPLE = concatenate.dispatch(spaces.Tuple)
_BATCHED_AS_OBJECTS = {
    concatenate.dispatch(kind)
    for kind in (spaces.Text, spaces.Sequence, spaces.Graph, spaces.OneOf, spaces.Space)
}


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """One array (or object) of a space: where it sits and what fits into it."""

    path: Path
    space: spaces.Space[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_array: bool

    def name(self, root: str) -> str:
        """How a user would write it: observation['camera'][0]."""
        return root + "".join(f"[{key!r}]" for key in self.path)


class Layout:
    """The leaves of one space, and the two ways between a value of the space and its leaves."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.leaves = tuple(_leaves(space, ()))
        self.arrays = tuple(leaf for leaf in self.leaves if leaf.is_array)
        self.has_objects = len(self.arrays) < len(self.leaves)
        self.is_plain = len(self.leaves) == 1 and not self.leaves[0].path
        """One leaf and nothing around it: a value is its own leaf."""

    def __reduce__(self) -> Any:
        return Layout, (self.space,)

    def assemble(self, parts: Sequence[Any]) -> Any:
        """One part per leaf, put into the structure of the space."""
        return parts[0] if self.is_plain else _assemble(self.space, iter(parts))

    def take_apart(self, value: Any, root: str = "observation") -> list[Any]:
        """The parts of a value of the space, one per leaf; wrong keys or counts are an error."""
        if self.is_plain:
            return [value]
        parts: list[Any] = []
        _take_apart(self.space, value, root, parts)
        return parts

    def batch_objects(self, leaf: Leaf, values: Sequence[Any]) -> Any:
        """A batch of an object leaf, as Gymnasium (or the user's registration) makes it."""
        if concatenate.dispatch(type(leaf.space)) in _BATCHED_AS_OBJECTS:
            return tuple(values)
        empty: Any = create_empty_array(leaf.space, len(values))
        return concatenate(leaf.space, values, empty)


def _leaves(space: spaces.Space[Any], path: Path) -> Iterator[Leaf]:
    rule = concatenate.dispatch(type(space))
    if rule is _BATCHED_AS_DICT:
        for key, inner in space.spaces.items():  # type: ignore[attr-defined]
            yield from _leaves(inner, (*path, key))
    elif rule is _BATCHED_AS_TUPLE:
        for index, inner in enumerate(space.spaces):  # type: ignore[attr-defined]
            yield from _leaves(inner, (*path, index))
    elif rule is _BATCHED_AS_ARRAY:
        assert space.shape is not None
        assert space.dtype is not None
        # By its name, so that it is NumPy's own instance even after pickling: writers compare by
        # identity first, which is what keeps them fast.
        dtype = np.dtype(np.dtype(space.dtype).str)
        yield Leaf(path, space, tuple(space.shape), dtype, True)
    else:
        yield Leaf(path, space, (), np.dtype(object), False)


def _assemble(space: spaces.Space[Any], parts: Iterator[Any]) -> Any:
    rule = concatenate.dispatch(type(space))
    if rule is _BATCHED_AS_DICT:
        items = space.spaces.items()  # type: ignore[attr-defined]
        return {key: _assemble(inner, parts) for key, inner in items}
    if rule is _BATCHED_AS_TUPLE:
        return tuple(_assemble(inner, parts) for inner in space.spaces)  # type: ignore[attr-defined]
    return next(parts)


def _take_apart(space: spaces.Space[Any], value: Any, where: str, parts: list[Any]) -> None:
    rule = concatenate.dispatch(type(space))
    if rule is _BATCHED_AS_DICT:
        inner = space.spaces  # type: ignore[attr-defined]
        if not hasattr(value, "keys"):
            raise ContractError(f"{where} is {shown(value)}; expected a dict with {list(inner)}.")
        if value.keys() != inner.keys():
            missing = [key for key in inner if key not in value]
            extra = [key for key in value if key not in inner]
            raise ContractError(
                f"{where} has the wrong keys: expected {list(inner)}, "
                f"got {list(value)} (missing {missing}, too many {extra})."
            )
        for key, one in inner.items():
            _take_apart(one, value[key], f"{where}[{key!r}]", parts)
    elif rule is _BATCHED_AS_TUPLE:
        inner = space.spaces  # type: ignore[attr-defined]
        if not isinstance(value, (tuple, list)) or len(value) != len(inner):
            raise ContractError(f"{where} is {shown(value)}; expected a tuple of {len(inner)}.")
        for index, (one, part) in enumerate(zip(inner, value, strict=True)):
            _take_apart(one, part, f"{where}[{index}]", parts)
    else:
        parts.append(value)


_AS_MEMORY = "?bhHiIlLqQfd"
"""Kinds of numbers that a memoryview can hold: the same ones for both sides of a copy. Not "B",
which is also the kind of `bytes`."""
NO_SUCH_ROW = (TypeError, ValueError, BufferError)
"""What copying into the memory of a row raises, if what is copied is not just such a row."""

Note = Callable[[str, str], None]
"""`note(key, text)`: something worth one line in the log, once per key."""


class Writer:
    """Writes values of a space into one row: `write(value)` checks, casts where nothing is lost.

    `objects` is where the parts of object leaves are put, one entry per object leaf, in order.
    """

    def __init__(
        self,
        layout: Layout,
        row: Sequence[Array],
        *,
        root: str = "observation",
        note: Note,
        check_finite: bool = False,
    ) -> None:
        self.objects: tuple[Any, ...] = ()
        self.memory: memoryview[Any] | None = None
        """The row itself, where whatever has its kind and shape may be copied into it."""
        self._layout, self._root, self._note = layout, root, note
        self._targets = list(zip(layout.arrays, row, strict=True))
        self._check_finite = check_finite
        self.write: Callable[[Any], None] = self._write
        if not check_finite and not layout.has_objects:
            self.write = self._plain_writer() if layout.is_plain else self._nested_writer()

    def _plain_writer(self) -> Callable[[Any], None]:
        """The common case, one array leaf: three comparisons and a copy.

        A row of numbers is copied by a memoryview, which compares, too, in half the time.
        """
        (leaf, row) = self._targets[0]
        shape, dtype, ndarray, slow = leaf.shape, leaf.dtype, np.ndarray, self._write
        if len(shape) == 1 and dtype.char in _AS_MEMORY and dtype.isnative:
            self.memory = memory = row.data

            def write_numbers(value: Any) -> None:
                try:
                    memory[:] = value
                except NO_SUCH_ROW:
                    slow(value)

            return write_numbers

        def write(value: Any) -> None:
            if type(value) is ndarray and value.dtype is dtype and value.shape == shape:
                row[...] = value
            else:
                slow(value)

        return write

    def _nested_writer(self) -> Callable[[Any], None]:
        """A Dict or Tuple of arrays, however deep: the same for each of its leaves."""
        put = _putting(self._layout.space, iter(self._targets))
        slow = self._write
        if put is None:
            return slow

        def write(value: Any) -> None:
            try:
                if put(value):
                    return
            except KeyError:
                pass
            slow(value)

        return write

    def _write(self, value: Any) -> None:
        parts = self._layout.take_apart(value, self._root)
        if self._layout.has_objects:
            leaves = self._layout.leaves
            self.objects = tuple(
                p for leaf, p in zip(leaves, parts, strict=True) if not leaf.is_array
            )
            parts = [p for leaf, p in zip(leaves, parts, strict=True) if leaf.is_array]
        for (leaf, row), part in zip(self._targets, parts, strict=True):
            self._write_leaf(leaf, row, part)

    def _write_leaf(self, leaf: Leaf, row: Array, part: Any) -> None:
        if type(part) is not np.ndarray or part.dtype is not leaf.dtype or part.shape != leaf.shape:
            part = fit(leaf, part, self._root, self._note)
        if not self._check_finite:
            row[...] = part
            return
        with np.errstate(over="ignore"):
            cast = np.asarray(part).astype(leaf.dtype)
        if leaf.dtype.kind in "fc" and not np.isfinite(cast).all():
            raise ContractError(f"{leaf.name(self._root)} is not finite: {shown(part)}.")
        row[...] = cast


def _putting(
    space: spaces.Space[Any], targets: Iterator[tuple[Leaf, Array]]
) -> Callable[[Any], bool] | None:
    """What copies the parts of just such a value into these rows, and else says False.

    None for spaces whose values may be of other kinds than dict and tuple.
    """
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return None
    kind = dict if isinstance(space, spaces.Dict) else tuple
    members = list(space.items() if isinstance(space, spaces.Dict) else enumerate(space))
    parts: list[tuple[Any, Any, Any, Any]] = []  # key, row, dtype and shape; or key and a function
    for key, inner in members:
        if concatenate.dispatch(type(inner)) is _BATCHED_AS_ARRAY:
            leaf, row = next(targets)
            parts.append((key, row, leaf.dtype, leaf.shape))
        else:
            put_inner = _putting(inner, targets)
            if put_inner is None:
                return None
            parts.append((key, put_inner, None, None))
    count, ndarray = len(parts), np.ndarray

    def put(value: Any) -> bool:
        if type(value) is not kind or len(value) != count:
            return False
        for key, row, dtype, shape in parts:
            part = value[key]
            if dtype is None:
                if not row(part):
                    return False
            elif type(part) is ndarray and part.dtype is dtype and part.shape == shape:
                row[...] = part
            else:
                return False
        return True

    return put


def fit(leaf: Leaf, part: Any, root: str, note: Note) -> Array:
    """`part` as an array for this leaf; an error where its shape is wrong or a cast would lose."""
    where = leaf.name(root)
    if part is None:
        raise ContractError(f"{where} is None; expected {leaf.space}.")
    try:
        array = np.asarray(part)
    except ValueError as problem:
        raise ContractError(f"{where} is not an array: {problem}; expected {leaf.space}.") from None
    if array.shape != leaf.shape:
        raise ContractError(
            f"{where} has shape {array.shape}; expected {leaf.shape} of {leaf.space}."
        )
    if array.dtype == leaf.dtype:
        return array
    if not casts_without_loss(array, leaf.dtype):
        raise ContractError(
            f"{where} has dtype {array.dtype}, which {leaf.dtype} of {leaf.space} cannot hold "
            f"without loss: got {shown(array)}."
        )
    if isinstance(part, np.ndarray) and not np.can_cast(array.dtype, leaf.dtype, "safe"):
        note(f"cast:{where}", f"{where} comes as {array.dtype} and is cast to {leaf.dtype}.")
    return array


def casts_without_loss(array: Array, dtype: np.dtype[Any]) -> bool:
    """Whether an array may be cast: always to coarser floats, to others if its values stay."""
    is_rounded = array.dtype.kind == dtype.kind and dtype.kind in "fc"
    if is_rounded or np.can_cast(array.dtype, dtype, "safe"):
        return True
    if array.dtype.kind not in "biuf" or dtype.kind not in "biufc":
        return False
    with np.errstate(invalid="ignore"):
        return bool((array.astype(dtype) == array).all())
