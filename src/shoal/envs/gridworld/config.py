"""What the grid world can be told; whatever cannot be is refused before there is a world."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError, shown, suggest
from shoal.extras import need

Color = tuple[int, int, int]

RENDER_MODES = ("human", "rgb_array")
MOST_LAMBDA = 0.5

COLORS: tuple[Color, ...] = (
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (120, 94, 160),
)
"""Of hunters that have none of their own, in turn; told apart by the colour-blind, too."""


@dataclass(frozen=True, slots=True)
class Hunter:
    """One agent: its name, the side of its field of view, and what it looks like."""

    name: str
    fov: int
    color: Color


@dataclass(frozen=True, slots=True)
class Target:
    """What is hunted."""

    moves: bool = True
    """False: it stays where it is."""
    move_probability: float = 1.0
    """How likely it moves after a cycle."""
    box: int = 3
    """The side of the square around it in which hunters are noticed; odd."""

    def __post_init__(self) -> None:
        _check_flag("moves", self.moves)
        _check_number("move_probability", self.move_probability)
        if not 0 <= self.move_probability <= 1:
            raise ConfigError(
                f"move_probability is {self.move_probability}; expected a number from 0 to 1."
            )
        _check_side("box", self.box)


@dataclass(frozen=True)
class GridWorldConfig:
    """The settings of a grid world, as its constructor takes them and as a file holds them."""

    size: int = 5
    """Cells along each side of the square grid."""
    max_steps: int = 500
    """Cycles (each hunter acts once in a cycle) after which those who still hunt are truncated."""
    render_mode: str | None = None
    """None, "human" (a window) or "rgb_array" (pictures)."""
    agents: int | Sequence[Mapping[str, Any]] = 2
    """How many hunters, or for each a mapping with any of `name`, `fov` and `color`."""
    target_config: Mapping[str, Any] | None = None
    """Any of `moves`, `move_probability` and `box`."""
    enable_obstacles: bool = True
    """False: there are none, whatever `num_obstacles` says."""
    num_obstacles: int = 0
    """Blocked cells. All others stay connected."""
    fov: int = 5
    """The side of the square that a hunter sees around itself; odd."""
    lambda_fov: float = 0.5
    """What it costs to be in the target's box; clamped to -0.5 to 0.5."""
    intrinsic: bool = False
    """Whether hunters are rewarded for cells that they have not been on before."""
    show_target_coords: bool = False
    """Whether hunters are told where the target is."""
    no_target: bool = False
    """True: there is nothing to hunt, only a grid to explore."""
    show_fov_display: bool = False
    """Whether pictures show what hunters see, and the target's box."""

    def __post_init__(self) -> None:
        _check_whole("size", self.size, at_least=2)
        _check_whole("max_steps", self.max_steps, at_least=1)
        _check_whole("num_obstacles", self.num_obstacles, at_least=0)
        _check_side("fov", self.fov)
        for name in _FLAGS:
            _check_flag(name, getattr(self, name))
        if self.render_mode is not None and self.render_mode not in RENDER_MODES:
            advice = suggest(self.render_mode, RENDER_MODES)
            raise ConfigError(f"render_mode is {shown(self.render_mode)}. {advice}")
        _check_number("lambda_fov", self.lambda_fov)
        clamped = min(max(float(self.lambda_fov), -MOST_LAMBDA), MOST_LAMBDA)
        object.__setattr__(self, "lambda_fov", clamped)
        self._check_room()

    @cached_property
    def hunters(self) -> tuple[Hunter, ...]:
        """All hunters, in the order of their turns."""
        given: Any = self.agents
        if not isinstance(given, list | tuple):
            _check_whole("agents", given, at_least=1)
            given = [{}] * int(given)
        if not given:
            raise ConfigError("agents is an empty list; expected one mapping per hunter.")
        hunters = tuple(self._hunter(index, one) for index, one in enumerate(given))
        names = [hunter.name for hunter in hunters]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"agents: two are called {twice[0]!r}. Names must differ.")
        return hunters

    @cached_property
    def target(self) -> Target | None:
        """What is hunted, if anything is."""
        given = {} if self.target_config is None else self.target_config
        _check_keys("target_config", given, [one.name for one in fields(Target)])
        try:
            target = Target(**given)
        except ConfigError as problem:
            raise ConfigError(f"target_config: {problem}") from None
        return None if self.no_target else target

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], place: str = "") -> GridWorldConfig:
        """`ConfigError` names the key that is wrong, and `place` (say, the name of a file)."""
        try:
            _check_keys("", mapping, [one.name for one in fields(cls)])
            return cls(**mapping)
        except ConfigError as problem:
            raise ConfigError(f"{place}: {problem}" if place else str(problem)) from None

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> GridWorldConfig:
        """What a file says, and defaults for the rest."""
        yaml = need("yaml")
        try:
            content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except OSError as problem:
            raise ConfigError(f"{path} cannot be read: {problem.strerror}.") from problem
        except (yaml.YAMLError, UnicodeDecodeError) as problem:
            reason = " ".join(str(problem).split())
            raise ConfigError(f"{path} is not valid YAML: {reason}.") from problem
        return cls.from_mapping({} if content is None else content, str(path))

    def _hunter(self, index: int, given: Mapping[str, Any]) -> Hunter:
        where = f"agents[{index}]"
        _check_keys(where, given, [one.name for one in fields(Hunter)])
        name = given.get("name", f"hunter_{index}")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"{where}: name must be text, got {shown(name)}.")
        fov = given.get("fov", self.fov)
        _check_side(f"{where}: fov", fov)
        color = given.get("color", COLORS[index % len(COLORS)])
        return Hunter(name, int(fov), _as_color(where, color))

    def _check_room(self) -> None:
        blocked = self.num_obstacles if self.enable_obstacles else 0
        needed = len(self.hunters) + (self.target is not None) + blocked
        if needed > self.size**2:
            raise ConfigError(
                f"a grid of {self.size} × {self.size} cells is too small for all: hunters "
                f"({len(self.hunters)}), target and obstacles ({blocked}) need {needed} cells. "
                "Choose a larger size, or fewer of them."
            )


_FLAGS = ("enable_obstacles", "intrinsic", "show_target_coords", "no_target", "show_fov_display")


def _check_keys(where: str, given: Any, known: Iterable[str]) -> None:
    prefix = f"{where}: " if where else ""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{prefix}expected settings by name, got {shown(given)}.")
    known = list(known)
    for key in given:
        if key not in known:
            raise ConfigError(f"{prefix}unknown key {key!r}. {suggest(key, known)}")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be true or false, got {shown(value)}.")


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:
        raise ConfigError(f"{name} must be a number, got {shown(value)}.")


def _check_whole(name: str, value: Any, at_least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < at_least:
        raise ConfigError(
            f"{name} must be a whole number of at least {at_least}, got {shown(value)}."
        )


def _check_side(name: str, value: Any) -> None:
    """Of a square with a cell in its middle."""
    _check_whole(name, value, at_least=1)
    if value % 2 == 0:
        raise ConfigError(f"{name} must be odd, got {value}. Try {value - 1} or {value + 1}.")


def _as_color(where: str, value: Any) -> Color:
    parts = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else []
    if len(parts) != 3 or not all(isinstance(one, Integral) and one in range(256) for one in parts):
        raise ConfigError(f"{where}: color must be three numbers 0 to 255, got {shown(value)}.")
    red, green, blue = map(int, parts)
    return red, green, blue
