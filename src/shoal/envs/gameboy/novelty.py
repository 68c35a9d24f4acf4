"""What an episode has seen already: where nothing else is worth anything, what is new is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.envs.gameboy.console import SCREEN, Picture

TILE = 8
NUM_TILES = SCREEN[0] // TILE * (SCREEN[1] // TILE)
SCREEN_TOLERANCE = NUM_TILES // 10
"""Pictures that differ in no more tiles are the same sight. In Tidekeep those of one room differ in
up to 34 of the 360 tiles (diver, crab, bubble, hearts), those of two rooms in 40 and more."""

Sights = npt.NDArray[Any]
"""`[count, width]`: of each sight the values, or the tiles, that it is known by."""


class Novelty:
    """The sights of one episode: new is what differs from each of them by more than a tolerance.

    Being compared with all of them, not with the last, nothing becomes new by small steps to and
    fro. What earlier episodes have seen does not count: a reward would depend on them, and could
    not be replayed.
    """

    def __init__(self, kind: str, places: Sequence[int]) -> None:
        """By pictures ("screen"), or by some values ("ram"): those at these places."""
        self.is_screen = kind == "screen"
        self._places = list(places)
        self._tolerance = SCREEN_TOLERANCE if self.is_screen else 0
        self.width = NUM_TILES if self.is_screen else len(self._places)
        self._known: Sights = np.zeros((0, self.width))
        self._count = 0

    @property
    def known(self) -> Sights:
        """What has been seen so far, in memory of its own."""
        return self._known[: self._count].copy()

    @known.setter
    def known(self, sights: Sights) -> None:
        self._known, self._count = sights.copy(), len(sights)

    def start(self, values: Sequence[int], frame: Picture | None) -> None:
        """An episode begins with this sight."""
        self.known = self._sight(values, frame)[None]

    def is_new(self, values: Sequence[int], frame: Picture | None) -> bool:
        """Whether this sight is new; it is not any more."""
        sight = self._sight(values, frame)
        differing = (self._known[: self._count] != sight).sum(axis=1)
        if differing.min() <= self._tolerance:
            return False
        if self._count == len(self._known):  # twice as large, so that it seldom has to grow
            self._known = np.concatenate([self._known, self._known])
        self._known[self._count] = sight
        self._count += 1
        return True

    def _sight(self, values: Sequence[int], frame: Picture | None) -> Sights:
        if self.is_screen and frame is not None:
            return tiles(frame)
        return np.array([values[at] for at in self._places], np.int32)


def tiles(frame: Picture) -> Picture:
    """A picture at a rough look: eight shades, a pixel a tile, one row after another."""
    shape = (SCREEN[0] // TILE, TILE, SCREEN[1] // TILE, TILE)
    sums = frame.reshape(shape).sum(axis=(1, 3), dtype=np.uint32)
    shades: Picture = (sums // TILE**2 >> 5).astype(np.uint8)
    return shades.ravel()
