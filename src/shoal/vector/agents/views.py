"""Views: where what an agent observes is written, again and again, before the engine takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
            self._layout, arrays, root=f"observation of {name!r}", note=self._note
        )
        self._has_noted = False
        self.is_cast = False
        """Whether, for the first time, numbers were cast to a kind that holds less."""
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

    def _note(self, key: str, text: str) -> None:
        self.is_cast, self._has_noted = not self._has_noted, True

    def kinds(self, observation: Any) -> list[Any]:
        """Of the numbers in it."""
        return [np.asarray(part).dtype for part in self._layout.take_apart(observation)]

    def as_given(self, observation: Any) -> Any:
        """Its value in numbers of the kinds that an observation came in.

        The engine casts them again, to the same, and tells the user of it: once for all
        environments, which views cannot know of.
        """
        if self._layout.has_objects:
            return self.value
        each = zip(self._arrays, self.kinds(observation), strict=True)
        return self._layout.assemble([array.astype(kind) for array, kind in each])

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
        self._layout = layout = Layout(space)
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

    def as_given(self, observations: Mapping[int, Any]) -> Any:
        """The same with those of these agents in the kinds of numbers that they came in."""
        if self._of_all is None:
            return tuple(
                view.as_given(observations[k]) if k in observations else view.value
                for k, view in enumerate(self.each)
            )
        k, observation = next(iter(observations.items()))
        arrays, kinds = self._layout.take_apart(self._of_all), self.each[k].kinds(observation)
        each = zip(arrays, kinds, strict=True)
        return self._layout.assemble([array.astype(kind) for array, kind in each])


def view_of(name: Any, space: spaces.Space[Any]) -> View:
    arrays = Layout(space).arrays
    return View(name, space, [np.zeros(leaf.shape, leaf.dtype) for leaf in arrays])
