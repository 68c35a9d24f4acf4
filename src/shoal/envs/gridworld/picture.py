"""What the grid world looks like: shapes by their distance to each pixel, blended with NumPy.

A shape is a signed distance (negative inside) in units of a cell, so its edges are smooth at every
size of cells.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.envs.gridworld.config import Color, GridWorldConfig
from shoal.envs.gridworld.world import Cell, World

Floats = npt.NDArray[np.float32]
Canvas = Floats
"""[height, width, 3], colours from 0 to 255."""

SIDE = 480
"""Pixels along a side, or a little less; more where cells would be smaller than the smallest."""
SMALLEST_CELL = 16

PAPER: Color = (250, 249, 245)
LINE: Color = (226, 223, 214)
ROCK: Color = (92, 99, 112)
PREY: Color = (214, 48, 49)
WHITE: Color = (255, 255, 255)

DIGITS = (
    "111101101101111",
    "010110010010111",
    "111001111100111",
    "111001111001111",
    "101101111001001",
    "111100111001111",
    "111100111101111",
    "111001001010010",
    "111101111101111",
    "111101111001111",
)
"""Three columns and five rows each."""


def draw(world: World, config: GridWorldConfig) -> npt.NDArray[np.uint8]:
    """A picture (uint8 [height, width, 3]) of all that is on the grid, (0, 0) at the lower left."""
    sheet = _Sheet(world.size)
    if config.show_fov_display:
        _draw_fields(sheet, world, config)
    for cell in world.obstacles:
        sheet.paint(cell, _square(sheet.cell, 0.42, 0.12), ROCK)
    if world.target is not None:
        _draw_target(sheet, world.target)
    for number, hunter in enumerate(config.hunters):
        if hunter.name in world.hunting:
            _draw_hunter(sheet, world.positions[hunter.name], number, hunter.color)
    return sheet.canvas.round().astype(np.uint8)


class _Sheet:
    """The canvas, cell by cell."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.cell = max(SMALLEST_CELL, SIDE // size)
        self.canvas = _empty(size, self.cell).copy()

    def paint(self, cell: Cell, coverage: Floats, color: Color) -> None:
        """Blend a colour into a cell, where the coverage is 1 wholly."""
        part = self.canvas[self._span(cell, 1)]
        part += (np.array(color, np.float32) - part) * coverage[..., None]

    def frame(self, middle: Cell, side: int, color: Color, width: int) -> None:
        """Tint a square of cells, as far as it lies on the grid, and outline it."""
        part = self.canvas[self._span(middle, side)]
        opacity = np.full(part.shape[:2], 0.10, np.float32)
        for edge in (opacity[:width], opacity[-width:], opacity[:, :width], opacity[:, -width:]):
            edge[:] = 0.75
        part += (np.array(color, np.float32) - part) * opacity[..., None]

    def _span(self, middle: Cell, side: int) -> tuple[slice, slice]:
        x, y = middle
        return self._pixels(self.size - 1 - y, side), self._pixels(x, side)

    def _pixels(self, index: int, side: int) -> slice:
        first, last = max(index - side // 2, 0), min(index + side // 2 + 1, self.size)
        return slice(first * self.cell, last * self.cell)


def _draw_fields(sheet: _Sheet, world: World, config: GridWorldConfig) -> None:
    width = max(1, sheet.cell // 32)
    if world.target is not None and config.target is not None:
        sheet.frame(world.target, config.target.box, PREY, width)
    for hunter in config.hunters:
        if hunter.name in world.hunting:
            sheet.frame(world.positions[hunter.name], hunter.fov, hunter.color, width)


def _draw_target(sheet: _Sheet, cell: Cell) -> None:
    sheet.paint(cell, _diamond(sheet.cell, 0.42), PREY)
    sheet.paint(cell, _diamond(sheet.cell, 0.26), WHITE)
    sheet.paint(cell, _diamond(sheet.cell, 0.14), PREY)


def _draw_hunter(sheet: _Sheet, cell: Cell, number: int, color: Color) -> None:
    sheet.paint(cell, _disc(sheet.cell, 0.40), WHITE)
    sheet.paint(cell, _disc(sheet.cell, 0.36), color)
    sheet.paint(cell, _digits(sheet.cell, number), WHITE)


@lru_cache(maxsize=4)
def _empty(size: int, cell: int) -> Canvas:
    canvas = np.empty((size * cell, size * cell, 3), np.float32)
    canvas[:] = PAPER
    for start in range(0, size * cell, cell):
        canvas[start, :] = canvas[:, start] = LINE
    canvas[-1, :] = canvas[:, -1] = LINE
    return canvas


@lru_cache(maxsize=64)
def _square(cell: int, half: float, corner: float) -> Floats:
    x, y = _offsets(cell)
    right, down = np.abs(x) - (half - corner), np.abs(y) - (half - corner)
    outside = np.hypot(np.maximum(right, 0), np.maximum(down, 0))
    return _coverage(cell, outside + np.minimum(np.maximum(right, down), 0) - corner)


@lru_cache(maxsize=64)
def _disc(cell: int, radius: float) -> Floats:
    x, y = _offsets(cell)
    return _coverage(cell, np.hypot(x, y) - radius)


@lru_cache(maxsize=64)
def _diamond(cell: int, radius: float) -> Floats:
    x, y = _offsets(cell)
    return _coverage(cell, (np.abs(x) + np.abs(y) - radius) / np.sqrt(2))


@lru_cache(maxsize=64)
def _digits(cell: int, number: int) -> Floats:
    """A number in the middle of a cell, as large as fits into a hunter."""
    rows = [[int(pixel) for pixel in DIGITS[int(digit)]] for digit in str(number)]
    pictures = [np.array(row, np.float32).reshape(5, 3) for row in rows]
    spaced = [part for one in pictures for part in (one, np.zeros((5, 1), np.float32))][:-1]
    dots = np.concatenate(spaced, axis=1)
    scale = max(1, cell // 2 // max(dots.shape[1] + 1, 6))
    dots = dots.repeat(scale, 0).repeat(scale, 1)
    coverage = np.zeros((cell, cell), np.float32)
    top, left = ((cell - length) // 2 for length in dots.shape)
    coverage[top : top + dots.shape[0], left : left + dots.shape[1]] = dots[:cell, :cell]
    return coverage


@lru_cache(maxsize=8)
def _offsets(cell: int) -> tuple[Any, Any]:
    """Of each pixel from the middle of its cell, in cells: to the right and downwards."""
    line = (np.arange(cell, dtype=np.float32) + 0.5) / cell - 0.5
    return np.meshgrid(line, line)


def _coverage(cell: int, distance: Any) -> Floats:
    covered: Floats = np.clip(0.5 - distance * cell, 0, 1).astype(np.float32)
    return covered
