"""One Game Boy: PyBoy without window and sound, from bytes in memory, writing no file."""

from __future__ import annotations

import io
import warnings
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.errors import ConfigError
from shoal.extras import needs

BUTTONS = ("a", "b", "up", "down", "left", "right", "start", "select")
SCREEN = (144, 160)
BOOT_FRAMES = 80
"""PyBoy's own boot ROM takes 65 of them; ours is playable five frames later."""

ROM_MARK = b"shoal: ROM "
"""Behind a saved state, where PyBoy does not look, with a checksum: of which ROM it is."""

Picture = npt.NDArray[np.uint8]
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)


def read_rom(path: Path) -> bytes:
    """The content of a ROM, read once in a process as long as the file stays the same."""
    try:
        there = path.stat()
        return _read_rom(path, there.st_mtime_ns, there.st_size)
    except OSError as problem:
        raise ConfigError(f"the ROM {path} cannot be read: {problem.strerror}.") from problem


@lru_cache(maxsize=8)
def _read_rom(path: Path, mtime_ns: int, size: int) -> bytes:
    return path.read_bytes()


class Console:
    """A running Game Boy. Battery-backed memory of a cartridge is neither read nor kept."""

    def __init__(self, rom: bytes, name: str = "ROM") -> None:
        self._rom, self._name = rom, name
        self._mark = ROM_MARK + zlib.crc32(rom).to_bytes(4, "little")
        self._switch_on()
        self._is_color = bool(rom[0x0143] & 0x80)

    def _switch_on(self) -> None:
        emulator = _load_pyboy()
        try:
            self._pyboy: Any = emulator(
                io.BytesIO(self._rom), window="null", sound_emulated=False, log_level="ERROR"
            )
        except Exception as problem:  # what PyBoy raises has no common root
            raise ConfigError(
                f"{self._name} is no cartridge that PyBoy can run: {problem} Expected a Game Boy "
                "ROM, a multiple of 16 KiB with a valid header."
            ) from problem
        self.held = ""
        """The button that is held; "" for none."""
        self.memory: Any = self._pyboy.memory
        """PyBoy's view of the address space: bytes by address, or lists by slice."""

    def hold(self, button: str) -> None:
        """Hold this button from the next frame on, and no other; "" for none."""
        if button == self.held:
            return
        if self.held:
            self._pyboy.button_release(self.held)
        if button:
            self._pyboy.button_press(button)
        self.held = button

    def advance(self, num_frames: int, draw: bool) -> None:
        """Let frames pass; with `draw` the last of them can be seen by `gray` and `color`."""
        self._pyboy.tick(num_frames, draw, False)

    def read(self, spans: Sequence[tuple[int, int]]) -> list[int]:
        """The bytes of some spans of addresses, one after another."""
        content: list[int] = []
        for begin, end in spans:
            content += self.memory[begin:end]
        return content

    def gray(self) -> Picture:
        """The last frame that was drawn, as shades of grey, in memory of its own."""
        frame = self._pyboy.screen.ndarray
        if not self._is_color:  # then red, green and blue are the same
            return np.ascontiguousarray(frame[..., 0])
        shades: Picture = (frame[..., :3] @ LUMINANCE).astype(np.uint8)
        return shades

    def color(self) -> Picture:
        """The last frame that was drawn, `[144, 160, 3]`, in memory of its own."""
        return np.ascontiguousarray(self._pyboy.screen.ndarray[..., :3])

    def save(self) -> bytes:
        """Everything: a state that `load` takes, here or in another console with the same ROM."""
        file = io.BytesIO()
        self._pyboy.save_state(file)
        return file.getvalue() + self._mark

    def load(self, state: bytes, held: str = "") -> None:
        """Go on from a saved state, with no button held, or still the one that was then.

        One that cannot be loaded is ConfigError, and leaves a console that was just switched on.
        """
        mark = state[-len(self._mark) :]
        if mark.startswith(ROM_MARK) and mark != self._mark:
            raise ConfigError(
                f"the state ({len(state)} bytes) was saved for another ROM than {self._name}, or "
                "for another version of it. Save one from an environment with this ROM."
            )
        try:
            self._pyboy.load_state(io.BytesIO(state))
        except Exception as problem:
            self.close()  # half a state is worse than none
            self._switch_on()
            self.advance(BOOT_FRAMES, draw=True)
            raise ConfigError(
                f"the state ({len(state)} bytes) cannot be loaded: {problem!r}. Expected what "
                "PyBoy's save_state has written for the same ROM."
            ) from problem
        self.held = held
        for button in BUTTONS:
            if button != held:
                self._pyboy.button_release(button)

    def close(self) -> None:
        """May be called twice."""
        self._pyboy.stop(save=False)  # else cartridge memory would be written


@lru_cache(maxsize=1)
def _load_pyboy() -> Any:
    with needs("pyboy", "gameboy"), warnings.catch_warnings():
        # pysdl2 warns that it uses the SDL2 that pip has installed, which is what it is for.
        warnings.filterwarnings("ignore", message="Using SDL2 binaries")
        from pyboy import PyBoy
    return PyBoy
