"""The game in a tester's hands: buttons, variables, and nothing between them and the emulator."""

from __future__ import annotations

from typing import Any

from shoal.envs.gameboy import ACTIONS, GameBoyEnv

FLOOR, WEED, PAVED, RUPEE, KEY, PEARL, ROCK, CORAL, GATE = range(9)
WIDTH, HEIGHT = 10, 8
MOVES = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}


class Game:
    """An environment, by the names of its buttons and variables."""

    def __init__(self, level: int = 1, **kwargs: Any) -> None:
        self.env = GameBoyEnv(**{"episode_length": None, **kwargs})
        self.env.reset(seed=0, options={"level": level})
        self.last: tuple[Any, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.env.peek(name)

    def __setitem__(self, name: str, value: int) -> None:
        assert self.env.console is not None
        self.env.console.memory[self.env.ram_map.field(name).address] = value

    def press(self, *buttons: str) -> dict[str, int]:
        """A step with each of these; the events of the last one."""
        for button in buttons:
            self.last = self.env.step(ACTIONS.index(button))
        info: dict[str, int] = self.last[4]
        return info

    @property
    def at(self) -> tuple[int, int, int]:
        return self["room"], self["x"], self["y"]

    def cell(self, x: int, y: int) -> int:
        kind: int = self["cells"][y * WIDTH + x]
        return kind

    def go_to_crab(self) -> None:
        """Into room 3, where a crab is, and to the middle of its doorway."""
        self.press(*["left"] * 5)
        assert self.at == (3, 9, 4)
        assert self["enemy_here"]

    def put_crab(self, x: int, y: int) -> None:
        """On this cell, and it rests there for a while."""
        self["enemy_x"], self["enemy_y"] = x, y
        self["enemy_pixel_x"], self["enemy_pixel_y"] = 16 * x, 16 * y
        self["enemy_step"] = 8
