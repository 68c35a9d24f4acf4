"""Values against spaces: what is wrong with an observation, leaf by leaf.

Shared by both checkers. The rules are the engine's: a cast within a kind is made (and warned of),
a cast between kinds is refused, Box bounds are not enforced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from shoal.testing.report import Problem, describe, shorten

_ARRAY_SPACES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def problems(
    space: Space[Any], value: Any, path: str = "observation", *, exact: bool = False
) -> Iterator[Problem]:
    """All that is wrong with ``value`` as a member of ``space``; nothing for a good one.

    With ``exact`` (for batches, which are the vector env's own arrays) any other dtype than the
    space's is an error.
    """
    if isinstance(space, spaces.Dict):
        yield from _dict_problems(space, value, path, exact)
    elif isinstance(space, spaces.Tuple):
        yield from _tuple_problems(space, value, path, exact)
    elif isinstance(space, _ARRAY_SPACES):
        yield from _array_problems(space, value, path, exact)
    else:
        yield from _other_problems(space, value, path)


def _dict_problems(space: spaces.Dict, value: Any, path: str, exact: bool) -> Iterator[Problem]:
    if not isinstance(value, Mapping):
        yield _wrong_type(path, "a dict", value)
        return
    missing = [key for key in space if key not in value]
    extra = [key for key in value if key not in space.spaces]
    keys = f"the keys {sorted(space.spaces)}"
    for key in missing:
        yield Problem(
            "error",
            f"{path} lacks the key {key!r}",
            keys,
            str(sorted(map(str, value))),
            "Return every key of the space at every step.",
        )
    for key in extra:
        yield Problem(
            "error",
            f"{path} has the key {key!r} that its space lacks",
            keys,
            str(sorted(map(str, value))),
            "Add the key to the space, or move it to info.",
        )
    for key, sub in space.items():
        if key in value:
            yield from problems(sub, value[key], f"{path}[{key!r}]", exact=exact)


def _tuple_problems(
    space: spaces.Tuple[Any], value: Any, path: str, exact: bool
) -> Iterator[Problem]:
    if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
        yield _wrong_type(path, f"a tuple of {len(space.spaces)}", value)
        return
    for i, (sub, part) in enumerate(zip(space.spaces, value, strict=True)):
        yield from problems(sub, part, f"{path}[{i}]", exact=exact)


def _other_problems(space: Space[Any], value: Any, path: str) -> Iterator[Problem]:
    try:
        if value in space:
            return
        got = shorten(value)
    except Exception as error:
        got = f"{shorten(value)}, which made the space raise {describe(error)}"
    yield Problem(
        "error",
        f"{path} is not in its space",
        shorten(space),
        got,
        "Return a member of the space, or widen the space.",
    )


def _array_problems(space: Space[Any], value: Any, path: str, exact: bool) -> Iterator[Problem]:
    array = _as_array(value)
    if array is None or (exact and not isinstance(value, np.ndarray)):
        yield _wrong_type(path, f"an array of {space.dtype}", value)
        return
    if isinstance(value, list | tuple):
        yield Problem(
            "warning",
            f"{path} is a {type(value).__name__} and not an array",
            "numpy.ndarray",
            shorten(value),
            "It is converted at every step; return an array.",
        )
    shape_problem = _shape_problem(space, array, path)
    if shape_problem is not None:
        yield shape_problem
        return
    cast = _cast_problem(space, array, path, exact)
    if cast is not None:
        yield cast
    if cast is None or cast.severity != "error":
        yield from _value_problems(space, array, path)


def _as_array(value: Any) -> np.ndarray[Any, Any] | None:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return None
    return array if array.dtype.kind in "biufc" else None


def _shape_problem(space: Space[Any], array: np.ndarray[Any, Any], path: str) -> Problem | None:
    if array.shape == space.shape:
        return None
    then = "Return this shape, or change the space."
    if _broadcasts(array.shape, space.shape or ()):
        then += " NumPy would repeat the value to fit in silence; Shoal refuses it."
    return Problem("error", f"{path} has the wrong shape", str(space.shape), str(array.shape), then)


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def _cast_problem(
    space: Space[Any], array: np.ndarray[Any, Any], path: str, exact: bool
) -> Problem | None:
    wanted = np.dtype(space.dtype)
    if array.dtype == wanted or (not exact and np.can_cast(array.dtype, wanted, "safe")):
        return None
    got = str(array.dtype)
    if exact:
        then = "Allocate the batch with the space's dtype."
        return Problem("error", f"{path} has the wrong dtype", str(wanted), got, then)
    if np.can_cast(array.dtype, wanted, "same_kind"):
        then = "It will be cast at every step; return the space's dtype to keep it exact."
        return Problem("warning", f"{path} has another dtype", str(wanted), got, then)
    then = "The cast would lose values, so it is refused: convert it, or change the space."
    return Problem("error", f"{path} has a dtype of another kind", str(wanted), got, then)


def _value_problems(space: Space[Any], array: np.ndarray[Any, Any], path: str) -> Iterator[Problem]:
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        yield Problem(
            "warning",
            f"{path} is not finite",
            "finite numbers",
            shorten(array),
            "Mend the environment; Faults(check_finite=True) makes this an error.",
        )
    outside = _outside(space, array)
    if outside is None:
        return
    if isinstance(space, spaces.Box):
        then = "Bounds are not enforced, but policies may rely on them: widen the space or clip."
        yield Problem("warning", f"{path} is outside its bounds", shorten(space), outside, then)
    else:
        then = "Return a member of the space, or widen the space."
        yield Problem("error", f"{path} is out of range", shorten(space), outside, then)


def _outside(space: Space[Any], array: np.ndarray[Any, Any]) -> str | None:
    """The first value outside the space, with its index; None when all are inside."""
    low, high = _bounds(space)
    # Not ~(inside): NaN is reported by its own finding.
    indices = np.argwhere((array < low) | (array > high))
    if len(indices) == 0:
        return None
    index = tuple(int(i) for i in indices[0])
    return f"{array[index]}{f' at {index}' if index else ''}"


def _bounds(space: Space[Any]) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return 0, 1


def _wrong_type(path: str, expected: str, value: Any) -> Problem:
    return Problem(
        "error",
        f"{path} has the wrong type",
        expected,
        f"{type(value).__name__} {shorten(value)}",
        "Return what the space describes.",
    )


def frozen(value: Any) -> Any:
    """A copy of all arrays and containers in it, which nothing can change later."""
    if isinstance(value, Mapping):
        return {key: frozen(part) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(frozen, value))
    if isinstance(value, tuple | list):
        return type(value)(map(frozen, value))
    if not isinstance(value, np.ndarray):
        return value
    kept = value.copy()
    if kept.dtype == object:
        for index in np.ndindex(kept.shape):
            kept[index] = frozen(value[index])
    return kept


def same(left: Any, right: Any) -> bool:
    """Equal through and through: structure, dtypes, shapes and values, with NaN equal to NaN."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return _same_arrays(left, right)
    if isinstance(left, float | np.floating) and isinstance(right, float | np.floating):
        return bool(left == right or (np.isnan(left) and np.isnan(right)))
    try:
        return left is right or bool(left == right)
    except Exception:  # objects that do not say whether they are equal
        return False


def _same_arrays(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype == object:
        return all(map(same, left.ravel(), right.ravel()))
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind in "fc"))


def row(space: Space[Any], batch: Any, index: int) -> Any:
    """One environment's part of a batch of members of ``space``."""
    if isinstance(space, spaces.Dict):
        return {key: row(sub, batch[key], index) for key, sub in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(row(sub, part, index) for sub, part in zip(space, batch, strict=True))
    return batch[index]
