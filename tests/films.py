"""What an mp4 holds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest


class Film(NamedTuple):
    """A video, frame by frame."""

    frames: list[np.ndarray[Any, Any]]
    size: tuple[int, int]
    """Width and height."""
    fps: float
    is_silent: bool


def film(path: Path) -> Film:
    moviepy = pytest.importorskip("moviepy")
    with moviepy.VideoFileClip(str(path)) as clip:
        (width, height), fps, is_silent = clip.size, clip.fps, clip.audio is None
    # Every frame that is there, where a clip would give those of its own clock.
    wanted = ["-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    asked = [moviepy.config.FFMPEG_BINARY, "-loglevel", "error", "-i", str(path), *wanted]
    data = subprocess.run(asked, capture_output=True, check=True).stdout
    frames = np.frombuffer(data, np.uint8).reshape(-1, height, width, 3)
    return Film(list(frames), (width, height), fps, is_silent)
