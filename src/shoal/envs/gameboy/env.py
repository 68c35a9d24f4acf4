"""A game on a real (emulated) Game Boy as a Gymnasium environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from shoal.envs.gameboy.config import NOVELTY, GameBoyConfig
from shoal.envs.gameboy.console import BOOT_FRAMES, Console, Picture, read_rom
from shoal.envs.gameboy.episode import Episode, pack, unpack
from shoal.envs.gameboy.events import Judge
from shoal.envs.gameboy.fields import Encoder, Reader, Vector
from shoal.envs.gameboy.novelty import Novelty
from shoal.envs.gameboy.rammap import Begin, RamMap
from shoal.envs.gameboy.screen import Film
from shoal.errors import ClosedError, ConfigError, ContractError, shown, suggest

GAME = Path(__file__).parent / "game"
ROM, RAM_MAP = GAME / "tidekeep.gb", GAME / "tidekeep.yaml"

ACTIONS = ("none", "a", "b", "up", "down", "left", "right")
"""What the actions 0 to 6 hold."""
PRESS_FRAMES = 8
"""For how long a title screen is pressed a button, and for how long it then is not."""

Observation = Any
"""A vector, frames, or a dict of both."""


class GameBoyEnv(gymnasium.Env[Observation, Any]):
    """A Game Boy, emulated by PyBoy, with one button held in each step.

    The arguments are those of `GameBoyConfig`, which explains them. Without `rom` it plays
    Tidekeep, an adventure of our own.

    - Actions: 0 none, 1 A, 2 B, 3 up, 4 down, 5 left, 6 right.
    - Observations: "ram" is a vector of numbers from 0 to 1, named by `feature_names`; "pixels" is
      `[stack, height, width]`, shades of grey; "both" is a dict of these.
    - Rewards, and the end of an episode, come from the events of the RAM map; `info` tells how
      often each has happened in a step, if it has. Without any reward there, new sights count.
    - `reset(options={"level": 7})` begins in a certain level, `{"state": bytes or path}` in a saved
      state (`save_state`), or goes on with a saved episode (`save`), this one time. Else the level
      comes from `np_random`, as far as the game has levels.

    An episode depends on nothing but its level (or state) and the actions.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        rom: str | os.PathLike[str] | None = None,
        ram_map: str | os.PathLike[str] | None = None,
        observation: str = "ram",
        *,
        screen: str = "small",
        stack: int = 4,
        frames_per_step: int = 4,
        press_frames: int | None = None,
        episode_length: int | None = 500,
        rewards: Mapping[str, float] | None = None,
        novelty: str | None = None,
        state: bytes | str | os.PathLike[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.config = GameBoyConfig(
            rom=rom,
            ram_map=ram_map,
            observation=observation,
            screen=screen,
            stack=stack,
            frames_per_step=frames_per_step,
            press_frames=press_frames,
            episode_length=episode_length,
            rewards=rewards,
            novelty=novelty,
            state=state,
            render_mode=render_mode,
        )
        self.render_mode = render_mode
        self.metadata = self.metadata | {"render_fps": max(1, round(60 / frames_per_step))}
        self.ram_map = _ram_map(self.config)
        self._prepare()
        self.console: Console | None = Console(
            read_rom(Path(rom or ROM)), str(rom) if rom is not None else "Tidekeep"
        )
        self._switched_on = self._switch_on(self.console)
        self.start_state = state
        self._values: tuple[int, ...] | None = None
        self._num_steps = 0

    def _prepare(self) -> None:
        """All that follows from settings and RAM map alone."""
        config, ram_map = self.config, self.ram_map
        used = {event.field for event in ram_map.events} | set(ram_map.novel)
        self._reader = Reader(one for one in ram_map.fields if one.width or one.name in used)
        self._encoder = Encoder(self._reader.fields)
        weights = dict(config.rewards or {})
        self._novelty_weight = float(weights.pop(NOVELTY, 1.0))
        known = [event.name for event in ram_map.events]
        for name in weights:
            if name not in known:
                raise ConfigError(
                    f"rewards: there is no event {name!r}. {suggest(name, [*known, NOVELTY])}"
                )
        self._judge = Judge(ram_map.events, self._reader.index, weights)
        self._novelty = self._choose_novelty()
        self._film = Film(config.screen, config.stack) if config.observation != "ram" else None
        sees = self._novelty is not None and self._novelty.is_screen
        self._draws = self._film is not None or sees or config.render_mode is not None
        self.feature_names = self._encoder.names
        self.action_space = spaces.Discrete(len(ACTIONS))
        self.observation_space = self._observation_space()

    def _choose_novelty(self) -> Novelty | None:
        kind, places = self.config.novelty, self.ram_map.novel
        if kind is None:
            kind = "none" if self._judge.rewards_anything else "ram" if places else "screen"
        if kind == "none":
            if (self.config.rewards or {}).get(NOVELTY):
                raise ConfigError(
                    f"rewards: novelty is {shown(self._novelty_weight)}, but nothing would come of "
                    "it: novelty='none', which is the default where events are worth something. "
                    "Choose novelty='ram' or 'screen' as well."
                )
            return None
        if kind == "ram" and not places:
            raise ConfigError(
                "novelty is 'ram', but the RAM map does not say what tells one place from another. "
                "Name such fields in it, as in 'novel: [room, x, y]', or choose novelty='screen'."
            )
        return Novelty(kind, [self._reader.index[name] for name in places])

    def _observation_space(self) -> spaces.Space[Any]:
        if self.config.observation != "pixels" and not self._encoder.width:
            raise ConfigError(
                f"observation is {self.config.observation!r}, but the RAM map has no field to "
                "observe. Give ram_map a file with fields, or choose observation='pixels'."
            )
        ram = spaces.Box(0.0, 1.0, (self._encoder.width,), np.float32)
        if self._film is None:
            return ram
        pixels = spaces.Box(0, 255, self._film.shape, np.uint8)
        both = spaces.Dict({"pixels": pixels, "ram": ram})
        return pixels if self.config.observation == "pixels" else both

    # --- Gymnasium -----------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        console = self._running()
        self._values = None  # a reset that fails leaves no episode
        super().reset(seed=seed)
        info, saved = self._begin(console, _check_options(options))
        values = self._reader.values(console.read(self._reader.spans))
        frames = self._take_up(saved) if saved else self._start_anew(console, values)
        self._values = values
        return self._observation(frames), info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        console = self._running()
        before = self._values
        if before is None:
            raise ContractError(
                "step was called before reset: there is no episode yet, or the last reset failed."
            )
        self._press(console, _button(action))
        self._values = self._reader.values(console.read(self._reader.spans))
        outcome = self._judge.outcome(before, self._values)
        self._num_steps += 1
        frame = console.gray() if self._draws else None
        reward = outcome.reward
        if self._novelty is not None and self._novelty.is_new(self._values, frame):
            reward += self._novelty_weight
        frames = self._film.add(frame) if self._film is not None and frame is not None else None
        length = self.config.episode_length
        truncated = length is not None and self._num_steps >= length and not outcome.ended
        return self._observation(frames), reward, outcome.ended, truncated, dict(outcome.counts)

    def render(self) -> Picture | None:
        """The screen as it is, `[144, 160, 3]`, with `render_mode="rgb_array"`."""
        return self._running().color() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        if self.console is not None:
            self.console.close()
            self.console = None

    # --- beyond Gymnasium ----------------------------------------------------

    @property
    def start_state(self) -> bytes | None:
        """The saved state in which episodes begin, or None; it can be set to bytes or a path.

        A vector environment remembers what `set_attr("start_state", ...)` has set: episodes of
        environments that had to be rebuilt begin there as well.
        """
        return self._start

    @start_state.setter
    def start_state(self, state: bytes | str | os.PathLike[str] | None) -> None:
        self._start = self._switched_on if state is None else _state_bytes(state)

    def save_state(self) -> bytes:
        """The state of the console, in which episodes can begin: `reset(options={"state": ...})`.

        The count of steps, the frames before and what was new are not part of it.
        """
        return self._running().save()

    def save(self) -> bytes:
        """The running episode: whoever loads it like a state goes on with it, identically.

        It fits environments with the same observations and the same kind of novelty, and, as it
        begins with the state of the console, PyBoy itself.
        """
        console = self._running()
        if self._values is None:
            raise ContractError("save was called before reset: there is no episode yet.")
        frames = None if self._film is None else self._film.frames
        sights = None if self._novelty is None else self._novelty.known
        return pack(console.save(), Episode(self._num_steps, console.held, frames, sights))

    def peek(self, name: str) -> int | list[int]:
        """What a field of the RAM map is now; a list where it holds several numbers."""
        field = self.ram_map.field(name)
        content = self._running().read([field.span])
        step = field.num_bytes
        values = [field.value(content[at : at + step]) for at in range(0, len(content), step)]
        return values if field.length > 1 else values[0]

    # --- inside --------------------------------------------------------------

    def _running(self) -> Console:
        if self.console is None:
            raise ClosedError("this Game Boy is closed already. Make a new environment.")
        return self.console

    def _switch_on(self, console: Console) -> bytes | None:
        """Past the title; where episodes begin, if the game cannot begin anew by itself."""
        console.advance(BOOT_FRAMES, draw=True)
        begin = self.ram_map.begin or Begin()
        for what in begin.press:
            if isinstance(what, str):
                console.hold(what)
                console.advance(PRESS_FRAMES, draw=True)
                console.hold("")
            console.advance(what if isinstance(what, int) else PRESS_FRAMES, draw=True)
        return console.save() if begin.restart is None else None

    def _begin(
        self, console: Console, options: Mapping[str, Any]
    ) -> tuple[dict[str, Any], Episode | None]:
        """To where the episode starts; what `info` says of it, and what was saved with a state."""
        begin = self.ram_map.begin
        is_loaded = "state" in options or self._start is not None
        if "level" in options and (is_loaded or begin is None or begin.seed is None):
            raise ContractError(
                "reset takes either a level or a state."
                if "state" in options
                else "this game has no levels: its RAM map names no seed, or a state was given."
            )
        if is_loaded or begin is None or begin.restart is None:
            state, saved = unpack(_state_bytes(options.get("state", self._start)))
            if saved is not None:
                self._check_fits(saved)
            console.load(state, saved.held if saved is not None else "")
            return {}, saved
        return self._restart(console, begin, begin.restart, options.get("level")), None

    def _start_anew(self, console: Console, values: Sequence[int]) -> Picture | None:
        """The first observation's frames, if it has any."""
        self._num_steps = 0
        frame = console.gray() if self._draws else None
        if self._novelty is not None:
            self._novelty.start(values, frame)
        return self._film.start(frame) if self._film is not None and frame is not None else None

    def _take_up(self, saved: Episode) -> Picture | None:
        """Likewise, of an episode that goes on."""
        self._num_steps = saved.num_steps
        if self._novelty is not None and saved.sights is not None:
            self._novelty.known = saved.sights
        if self._film is None or saved.frames is None:
            return None
        self._film.frames = saved.frames
        return saved.frames

    def _check_fits(self, saved: Episode) -> None:
        """Before anything has changed."""
        frames = None if self._film is None else self._film.shape
        sights = None if self._novelty is None else (self._novelty.width,)
        for name, expected, found in (
            ("frames", frames, None if saved.frames is None else saved.frames.shape),
            ("sights", sights, None if saved.sights is None else saved.sights.shape[1:]),
        ):
            if expected is not None and found != expected:
                raise ConfigError(
                    f"the saved episode has {name} of shape {found}, expected {expected}. Load it "
                    "with the observation, screen, stack and novelty that it was saved with."
                )

    def _restart(self, console: Console, begin: Begin, address: int, level: Any) -> dict[str, Any]:
        console.hold("")
        info = {}
        if begin.seed is not None:
            most = 256**begin.seed_bytes
            chosen = int(self.np_random.integers(1, most))  # drawn in any case, for the next ones
            info["level"] = chosen = chosen if level is None else _level(level, most)
            for at, byte in enumerate(chosen.to_bytes(begin.seed_bytes, "little")):
                console.memory[begin.seed + at] = byte
        console.memory[address] = 1
        console.advance(begin.frames, draw=self._draws)
        return info

    def _press(self, console: Console, button: str) -> None:
        frames, held = self.config.frames_per_step, self.config.press_frames
        console.hold(button)
        if held is not None and held < frames:
            console.advance(held, draw=False)
            console.hold("")
            frames -= held
        console.advance(frames, draw=self._draws)

    def _observation(self, frames: Picture | None) -> Observation:
        if frames is None:
            return self._vector()
        if self.config.observation == "pixels":
            return frames
        return {"pixels": frames, "ram": self._vector()}

    def _vector(self) -> Vector:
        return self._encoder(self._values or ())


_BUTTONS = {at: name if name != "none" else "" for at, name in enumerate(ACTIONS)}


def _button(action: Any) -> str:
    try:
        return _BUTTONS[action]
    except (KeyError, TypeError):
        if isinstance(action, np.ndarray) and not action.ndim and action.dtype.kind in "iu":
            return _button(action.item())
        raise ContractError(
            f"the action is {shown(action)}; expected a number from 0 to {len(ACTIONS) - 1}."
        ) from None


def _ram_map(config: GameBoyConfig) -> RamMap:
    if config.rom is None:
        return RamMap.from_yaml(RAM_MAP)
    return RamMap() if config.ram_map is None else RamMap.from_yaml(config.ram_map)


def _check_options(options: dict[str, Any] | None) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise ContractError(
            f"the options of reset are {shown(options)}; expected a dict with 'level' or 'state'."
        )
    for key in options or {}:
        if key not in ("level", "state"):
            raise ContractError(
                f"reset knows no option {key!r}. {suggest(key, ('level', 'state'))}"
            )
    return options or {}


def _level(level: Any, most: int) -> int:
    if isinstance(level, bool) or not isinstance(level, int | np.integer) or not 0 <= level < most:
        raise ContractError(f"the level must be from 0 to {most - 1}, got {shown(level)}.")
    return int(level)


def _state_bytes(state: Any) -> bytes:
    """A saved state, which may be named by its path."""
    if isinstance(state, bytes):
        return state
    try:
        return Path(state).read_bytes()
    except (OSError, TypeError) as problem:
        raise ConfigError(f"the state {shown(state)} cannot be read: {problem}.") from problem
