"""Views: where what an agent observes is written, again and again, before the engine takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.layout import Array, Layout, Writer
from shoal.vector.agents.cast import Cast


class View:
    """One agent's, checked as the engine checks an observation."""

    def __init__(self, name: Any, space: spaces.Space[Any], arrays: list[Array]) -> None:
        self._layout, self._arrays = Layout(space), arrays
        self._writer = Writer(
            self._layout, arrays, root=f"observation of {name!r}", note=_say_nothing
        )
        self.write: Callable[[Any], None] = self._writer.write
        self._plain = None if self._layout.has_objects else self._layout.assemble(arrays)

    @property
    def value(self) -> Any:
        """It, as the agent's space has it."""
        if self._plain is not None:
            return self._plain
        arrays, objects = iter(self._arrays), iter(self._writer.objects)
        leaves = self._layout.leaves
        return self._layout.assemble(
            [next(arrays) if leaf.is_array else next(objects, None) for leaf in leaves]
        )

    def clear(self) -> None:
        for array in self._arrays:
            array[...] = 0
        self._writer.objects = ()


class Stacked:
    """Those of all agents of a cast; of agents that are alike, rows of the same arrays."""

    def __init__(self, cast: Cast) -> None:
        self._of_all: Any = None
        self.has_objects = any(Layout(space).has_objects for space in cast.observation_spaces)
        if not cast.sees_alike:
            pairs = zip(cast.names, cast.observation_spaces, strict=True)
            self.each = [view_of(*one) for one in pairs]
            return
        space = cast.observation_spaces[0]
        layout = Layout(space)
        arrays = [np.zeros((len(cast), *leaf.shape), leaf.dtype) for leaf in layout.leaves]
        self._of_all = layout.assemble(arrays)
        self.each = [
            View(name, space, [array[k, ...] for array in arrays])
            for k, name in enumerate(cast.names)
        ]

    @property
    def value(self) -> Any:
        """As `cast.observation_space` has it."""
        of_all = self._of_all
        return tuple(view.value for view in self.each) if of_all is None else of_all


def view_of(name: Any, space: spaces.Space[Any]) -> View:
    arrays = Layout(space).arrays
    return View(name, space, [np.zeros(leaf.shape, leaf.dtype) for leaf in arrays])


def _say_nothing(key: str, text: str) -> None:
    """Whoever wants to know of casts asks `shoal.testing`."""
