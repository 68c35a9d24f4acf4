"""From frames to observations: shades of grey, small or as they are, the last few together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shoal.envs.gameboy.console import SCREEN, Picture

SIZES = {"small": (84, 84), "native": SCREEN}
"""What pixels may be asked for as."""

Indices = npt.NDArray[np.intp]
Weights = npt.NDArray[np.float32]


class Film:
    """The last few frames, newest last: `[stack, height, width]`."""

    def __init__(self, size: str, stack: int) -> None:
        self.shape = (stack, *SIZES[size])
        self._shrink = None if size == "native" else Shrink(SCREEN, SIZES[size])
        self.frames = np.zeros(self.shape, np.uint8)
        """Those of the last observation, not to be written into."""

    def start(self, frame: Picture) -> Picture:
        """An episode begins: there is nothing before this frame, so it is repeated."""
        self.frames = np.repeat(self._small(frame)[None], self.shape[0], axis=0)
        return self.frames

    def add(self, frame: Picture) -> Picture:
        """One frame more. What is returned stays as it is."""
        frames = np.empty_like(self.frames)
        frames[:-1] = self.frames[1:]
        frames[-1] = self._small(frame)
        self.frames = frames
        return frames

    def _small(self, frame: Picture) -> Picture:
        return frame if self._shrink is None else self._shrink(frame)


class Shrink:
    """Makes pictures smaller: each new pixel is the mean of the area that it covers.

    All sums are whole numbers below 2 ** 24, so they are exact. There are no matrix products,
    because BLAS spreads them over threads, which wait for each other where cores are busy.
    """

    def __init__(self, old: tuple[int, int], new: tuple[int, int]) -> None:
        self._rows = [(at, share[:, None]) for at, share in _taps(old[0], new[0])]
        self._columns = _taps(old[1], new[1])
        self._area = np.float32(old[0] * old[1])

    def __call__(self, picture: Picture) -> Picture:
        low = np.add.reduce([picture[at] * share for at, share in self._rows])
        small = np.add.reduce([low.take(at, axis=1) * share for at, share in self._columns])
        shades: Picture = (small / self._area + np.float32(0.5)).astype(np.uint8)
        return shades


def _taps(old: int, new: int) -> list[tuple[Indices, Weights]]:
    """For the first, second, ... old pixel that each new one covers: which, and how much of it.

    Shares are in parts of 1 / new, and together `old` for each new pixel.
    """
    begin = np.arange(new) * old
    taps = []
    for number in range(-(-old // new) + 1):
        at = begin // new + number
        share = np.minimum(begin + old, at * new + new) - np.maximum(begin, at * new)
        taps.append((np.minimum(at, old - 1), np.maximum(share, 0).astype(np.float32)))
    return taps
