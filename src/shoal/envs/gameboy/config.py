"""What a Game Boy environment can be told; whatever cannot be is refused before there is one."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from shoal.envs.gameboy.screen import SIZES
from shoal.errors import ConfigError, shown, suggest

OBSERVATIONS = ("ram", "pixels", "both")
NOVELTIES = ("ram", "screen", "none")
NOVELTY = "novelty"
"""What new sights are called among the rewards."""
RENDER_MODES = ("rgb_array",)

Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class GameBoyConfig:
    """The settings of a Game Boy environment, as its constructor takes them."""

    rom: Path | None = None
    """A cartridge of your own; None for Tidekeep, which comes with Shoal."""
    ram_map: Path | None = None
    """A YAML file with the fields, events and rewards of that cartridge."""
    observation: str = "ram"
    """"ram" (named values, a vector), "pixels" (frames) or "both" (a dict of the two)."""
    screen: str = "small"
    """Frames are "small" (84 × 84) or "native" (144 × 160)."""
    stack: int = 4
    """How many frames an observation holds, the newest last."""
    frames_per_step: int = 4
    """Sixtieths of a second that a step takes."""
    press_frames: int | None = None
    """For how many of them the button is held; None for all."""
    episode_length: int | None = 500
    """Steps after which an episode is truncated; None for never."""
    rewards: Mapping[str, float] | None = None
    """What events are worth, as far as it differs from the RAM map; `novelty` among them."""
    novelty: str | None = None
    """What must be new to be rewarded: "ram" (places), "screen" (rough pictures) or "none". None:
    "none" where some event is worth something, else "ram" if the map has places, else "screen"."""
    state: bytes | Path | None = None
    """A saved state in which episodes begin, unless `reset` is given another one."""
    render_mode: str | None = None
    """"rgb_array", or None."""

    def __post_init__(self) -> None:
        _check_choice("observation", self.observation, OBSERVATIONS)
        _check_choice("screen", self.screen, SIZES)
        for name in ("stack", "frames_per_step"):
            _check_whole(name, getattr(self, name))
        for name in ("press_frames", "episode_length"):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name))
        if self.press_frames is not None and self.press_frames > self.frames_per_step:
            raise ConfigError(
                f"press_frames is {self.press_frames}; a step has {self.frames_per_step} frames."
            )
        if self.novelty is not None:
            _check_choice("novelty", self.novelty, NOVELTIES)
        if self.render_mode is not None:
            _check_choice("render_mode", self.render_mode, RENDER_MODES)
        if self.ram_map is not None and self.rom is None:
            raise ConfigError("ram_map is given without rom: Tidekeep has its own.")
        self._check_rewards()

    def _check_rewards(self) -> None:
        if self.rewards is None:
            return
        if not isinstance(self.rewards, Mapping):
            raise ConfigError(f"rewards must be numbers by event, got {shown(self.rewards)}.")
        rewards: Mapping[str, Any] = self.rewards
        for name, value in rewards.items():
            if not is_worth(value):
                raise ConfigError(f"rewards: {name} must be a finite number, got {shown(value)}.")


def is_worth(value: Any) -> bool:
    """Whether something can be worth that much."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _check_choice(name: str, value: Any, known: Any) -> None:
    if value not in known:
        raise ConfigError(f"{name} is {shown(value)}. {suggest(value, known)}")


def _check_whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, got {shown(value)}.")
