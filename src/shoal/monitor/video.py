"""Videos: frames into mp4 files, and an environment that films whole episodes of its own.

Frames go to ffmpeg one by one, as they are drawn, so that no episode is held in memory. A film has
its name only when it is finished.
"""

from __future__ import annotations

import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from shoal.errors import ConfigError, ContractError, shown
from shoal.extras import needs
from shoal.monitor.whole import part_of

MAX_FRAMES = 3000
"""Of one episode; with the last of them the film is finished, whether or not the episode is."""
DEFAULT_FPS = 30

Frame = npt.NDArray[np.uint8]

logger = logging.getLogger("shoal")


def write(frames: Iterable[Frame], path: str | Path, fps: float) -> None:
    """Write a silent mp4, whole or not at all, of frames (uint8 [height, width, 3], of one size).

    Odd sizes get one more row or column. ConfigError where moviepy is not installed, ContractError
    for what is no frame or none at all, OSError where it cannot be written.
    """
    film = Film(Path(path), fps)
    try:
        for frame in frames:
            film.add(frame)
        film.finish()
    except BaseException:
        film.discard()
        raise


class Film:
    """An mp4 under way; ends with `finish`, or with `discard`, which leaves nothing."""

    def __init__(self, path: Path, fps: float) -> None:
        with needs("moviepy", "video"):
            from moviepy.video.io.ffmpeg_writer import FFMPEG_VideoWriter
        self._writer_type: Any = FFMPEG_VideoWriter
        self._path, self._part, self._fps = path, part_of(path), fps
        self._writer: Any = None
        self._process: Any = None
        self._shape: tuple[int, ...] = ()
        self.num_frames = 0

    def add(self, frame: Frame) -> None:
        _check(frame)
        if self._writer is None:
            self._open(frame.shape)
        if frame.shape != self._shape:
            raise ContractError(
                f"frame {self.num_frames} of {self._path} has shape {frame.shape}; "
                f"expected {self._shape}, as those before it."
            )
        self._writer.write_frame(_even(frame))
        self.num_frames += 1

    def finish(self) -> None:
        if self._process is None:
            raise ContractError(f"there are no frames for {self._path}.")
        _, complaint = self._process.communicate()
        if self._process.returncode:
            raise OSError(f"ffmpeg could not write {self._path}: {complaint.decode().strip()}")
        os.replace(self._part, self._path)

    def discard(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        with suppress(OSError):  # there may not even be a folder
            self._part.unlink()

    def _open(self, shape: tuple[int, ...]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._shape = shape
        height, width = (side + side % 2 for side in shape[:2])
        self._writer = self._writer_type(
            str(self._part), (width, height), self._fps, preset="veryfast", threads=1
        )
        self._process = self._writer.proc


def _check(frame: object) -> None:
    if not isinstance(frame, np.ndarray):
        raise ContractError(f"a frame is {shown(frame)}; expected an array [height, width, 3].")
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise ContractError(
            f"a frame is {frame.dtype} of shape {frame.shape}; expected uint8 [height, width, 3]."
        )


def _even(frame: Frame) -> Frame:
    """What the usual pixel format needs: the last row and column twice, where the size is odd."""
    height, width, _ = frame.shape
    return np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")


# --- an environment that films itself ----------------------------------------------------------


def record_first(
    factory: Callable[..., Any],
    folder: str | Path,
    every_steps: int,
    wrap: Callable[[Any], Any] | None = None,
) -> Callable[..., Any]:
    """A factory like the given one (of environment 0, say), whose environment films episodes.

    The first whole episode, and after each `every_steps` of its steps the next one, are written
    into the folder as `step-000012000.mp4`: the number is that of the step at which they begin. It
    goes on from the latest film in the folder, after a restart too. Where there can be no video a
    warning says so, and the environment is as it would have been. `wrap` makes a Gymnasium
    environment of what the factory makes.
    """
    if every_steps < 1:
        raise ConfigError(f"every_steps is {every_steps}; expected 1 or more.")
    if importlib.util.find_spec("moviepy") is None:
        raise ConfigError('moviepy writes videos: pip install "shoal-rl[video]".')
    return Filming(factory, Path(folder), every_steps, wrap)


@dataclass(frozen=True, slots=True)
class Filming:
    """The factory that `record_first` returns."""

    factory: Callable[..., Any]
    folder: Path
    every_steps: int
    wrap: Callable[[Any], Any] | None = None

    def __call__(self, **kwargs: Any) -> Any:
        takes_mode = _takes_render_mode(self.factory)
        if takes_mode:
            kwargs = {**kwargs, "render_mode": "rgb_array"}
        env = self.factory(**kwargs)
        env = env if self.wrap is None else self.wrap(env)
        if isinstance(env, gymnasium.Env) and (takes_mode or env.render_mode == "rgb_array"):
            return Camera(env, self.folder, self.every_steps)
        logger.warning(
            "there will be no video: %s does not take render_mode, or makes no Gymnasium "
            "environment. Let it take render_mode='rgb_array' and pass it on.",
            shown(self.factory),
        )
        return env


def _takes_render_mode(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # some written in C have none
        return False
    named = parameters.get("render_mode")
    if named is not None:
        return named.kind is not inspect.Parameter.POSITIONAL_ONLY
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


class Camera(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Films whole episodes of one environment, and changes nothing about it."""

    def __init__(self, env: gymnasium.Env[Any, Any], folder: Path, every_steps: int) -> None:
        super().__init__(env)
        self._folder, self._every_steps = folder, every_steps
        self._fps = env.metadata.get("render_fps") or DEFAULT_FPS
        self._film: Film | None = None
        self._has_warned = False
        _sweep(folder)
        latest = _latest_step(folder)
        self._steps, self._due = (0, 0) if latest is None else (latest, latest + every_steps)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self._film is not None:
            self._drop()
            self._due = self._steps  # the episode was broken off, so another one takes its place
        result = self.env.reset(seed=seed, options=options)
        if self._steps >= self._due:
            self._due = self._steps + self._every_steps
            self._attempt(self._begin)
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._steps += 1
        if self._film is not None:
            self._attempt(self._shoot)
            if result[2] or result[3] or self._is_full():
                self._attempt(self._finish)
        return result

    def close(self) -> None:
        self._drop()
        super().close()

    def _begin(self) -> None:
        self._film = Film(self._folder / f"step-{self._steps:09d}.mp4", self._fps)
        with _without_devices():
            self._shoot()

    def _shoot(self) -> None:
        if self._film is not None:
            frame: Any = self.env.render()
            self._film.add(frame)

    def _is_full(self) -> bool:
        return self._film is not None and self._film.num_frames >= MAX_FRAMES

    def _finish(self) -> None:
        if self._film is not None:
            self._film.finish()
            self._film = None

    def _drop(self) -> None:
        film, self._film = self._film, None
        if film is not None:
            film.discard()

    def _attempt(self, work: Callable[[], None]) -> None:
        """Whatever goes wrong with a film costs that film, and all of them together one warning."""
        try:
            work()
        except Exception as problem:
            self._drop()
            if not self._has_warned:
                logger.warning(
                    "no video of %s from step %d into %s: %s. The run goes on; it is tried again "
                    "every %d steps, without another word.",
                    shown(self.env),
                    self._steps,
                    self._folder,
                    shown(problem),
                    self._every_steps,
                )
            self._has_warned = True


@contextmanager
def _without_devices() -> Iterator[None]:
    """While SDL, which many environments draw with, opens neither display nor sound.

    It does so with the first frame, and where there is none complains on the screen. Where there is
    one, or somebody has said what SDL is to use, nothing changes.
    """
    names = ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER")
    said = ("DISPLAY", "WAYLAND_DISPLAY", *names)
    if not sys.platform.startswith("linux") or any(name in os.environ for name in said):
        yield
        return
    os.environ.update(dict.fromkeys(names, "dummy"))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)


def _latest_step(folder: Path) -> int | None:
    numbers = [path.stem.removeprefix("step-") for path in folder.glob("step-*.mp4")]
    return max((int(number) for number in numbers if number.isdigit()), default=None)


def _sweep(folder: Path) -> None:
    """Remove what a recording left that was killed."""
    for part in folder.glob(".step-*.mp4"):
        with suppress(OSError):
            part.unlink()
