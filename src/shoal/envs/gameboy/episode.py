"""A running episode as bytes: the state of its console, and behind it all else that matters."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.envs.gameboy.console import BUTTONS, Picture
from shoal.envs.gameboy.novelty import Sights
from shoal.errors import ConfigError

MARK = b"shoal: episode "
"""At the very end, after the length of what stands between the state and it."""
LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Episode:
    """What a console does not know of the episode that it is in."""

    num_steps: int = 0
    held: str = ""
    """The button that the last step held to its end: games may ask whether one was just pressed."""
    frames: Picture | None = None
    """The last ones, as observations have them."""
    sights: Sights | None = None
    """What is not new any more."""


def pack(state: bytes, episode: Episode) -> bytes:
    """The state with the episode behind it, where PyBoy does not look."""
    parts: dict[str, Any] = {
        "num_steps": np.array(episode.num_steps),
        "held": np.array(BUTTONS.index(episode.held) if episode.held else -1),
    }
    parts |= {
        name: part
        for name, part in (("frames", episode.frames), ("sights", episode.sights))
        if part is not None
    }
    file = io.BytesIO()
    np.savez_compressed(file, **parts)
    content = file.getvalue()
    return state + content + len(content).to_bytes(LENGTH_BYTES, "little") + MARK


def unpack(saved: bytes) -> tuple[bytes, Episode | None]:
    """The state, and the episode if there is one behind it."""
    if not saved.endswith(MARK):
        return saved, None
    end = len(saved) - len(MARK) - LENGTH_BYTES
    begin = end - int.from_bytes(saved[end : end + LENGTH_BYTES], "little")
    try:
        with np.load(io.BytesIO(saved[begin:end]), allow_pickle=False) as parts:
            held = int(parts["held"])
            return saved[:begin], Episode(
                int(parts["num_steps"]),
                BUTTONS[held] if held >= 0 else "",
                parts.get("frames"),
                parts.get("sights"),
            )
    except (ValueError, KeyError, IndexError, OSError, EOFError, zipfile.BadZipFile) as problem:
        raise ConfigError(
            f"the saved episode ({len(saved)} bytes) cannot be loaded: {problem!r}. Expected what "
            "GameBoyEnv.save has returned, all of it."
        ) from problem
