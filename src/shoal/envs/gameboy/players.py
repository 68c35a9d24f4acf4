"""Players of Tidekeep that learn nothing: what any agent should be compared with.

scores = play(GameBoyEnv(), ScriptedPlayer(), range(10))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from shoal.envs.gameboy.env import ACTIONS, GameBoyEnv

Cell = tuple[int, int]
"""Column and row. Those just outside of a room stand for the rooms beyond its doorways."""
Node = TypeVar("Node", bound=Hashable)

WIDTH, HEIGHT, NUM_ROOMS = 10, 8, 6
PAVED, ROCK, GATE = 2, 6, 8
PEARL_ROOM = 2
MOVES: dict[str, Cell] = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
DOORWAYS = ((0, 1), (0, 3), (1, 2), (1, 4), (3, 4), (4, 5))


class Player(Protocol):
    """Chooses an action for the state that an environment is in."""

    def act(self, env: GameBoyEnv) -> int: ...


class Score(NamedTuple):
    """How an episode went."""

    reward: float
    num_steps: int
    won: bool


def play(env: GameBoyEnv, player: Player, seeds: Iterable[int]) -> list[Score]:
    """One episode from each seed."""
    return [_play_once(env, player, seed) for seed in seeds]


def _play_once(env: GameBoyEnv, player: Player, seed: int) -> Score:
    env.reset(seed=seed)
    total, num_steps = 0.0, 0
    while True:
        _, reward, terminated, truncated, info = env.step(player.act(env))
        total, num_steps = total + reward, num_steps + 1
        if terminated or truncated:
            return Score(total, num_steps, "goal" in info)


class RandomPlayer:
    """Presses buttons by chance."""

    def __init__(self, seed: int | None = None) -> None:
        self._generator = np.random.default_rng(seed)

    def act(self, env: GameBoyEnv) -> int:
        return int(self._generator.integers(len(ACTIONS)))


@dataclass(frozen=True)
class ScriptedPlayer:
    """Knows the keep: the key, then the gate, then the pearl, by the shortest way around crabs.

    Where a crab leaves no way it waits in its bubble. With `rupees` it also takes those of the
    rooms that it comes through.
    """

    rupees: bool = False

    def act(self, env: GameBoyEnv) -> int:
        view = View.of(env)
        for wanted in self._wishes(view):
            way = shortest_way(view.at, wanted, view.neighbours)
            if way:
                return _toward(view.at, way[0])
        return ACTIONS.index("b")

    def _wishes(self, view: View) -> Iterator[Collection[Cell]]:
        """Cells to go to, the best first."""
        if self.rupees and view.rupees:
            yield view.rupees
        if view.treasure is not None:
            yield [view.treasure]
        else:
            yield view.exits()


class WaitingPlayer:
    """Goes to the crab in the room to the left and stays beside it, in its bubble."""

    def act(self, env: GameBoyEnv) -> int:
        is_there = View.of(env).crab is not None
        return ACTIONS.index("b" if is_there else "left")


class ExploringPlayer:
    """Walks wherever it has not been, around crabs: the nearest such cell, then the next room."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._been: set[tuple[int, Cell]] = set()
        self._visits = [0] * NUM_ROOMS
        self._room = -1

    def act(self, env: GameBoyEnv) -> int:
        view = View.of(env)
        if env.peek("explored") == 1:  # an episode begins
            self._forget()
        self._been.add((view.room, view.at))
        if view.room != self._room:
            self._room = view.room
            self._visits[view.room] += 1
        way = shortest_way(view.at, self._fresh(view), view.neighbours)
        way = way or shortest_way(view.at, self._exits(view), view.neighbours)
        return _toward(view.at, way[0]) if way else ACTIONS.index("b")

    def _fresh(self, view: View) -> list[Cell]:
        inside = [(column, row) for column in range(WIDTH) for row in range(HEIGHT)]
        return [cell for cell in inside if (view.room, cell) not in self._been]

    def _exits(self, view: View) -> list[Cell]:
        """To the room beside this one that it has been in least often."""
        open_to = [room for room in _rooms_beside(view.room) if self._can_reach(view, room)]
        return _cells_to(view.room, min(open_to, key=self._visits.__getitem__)) if open_to else []

    def _can_reach(self, view: View, room: int) -> bool:
        return bool(shortest_way(view.at, _cells_to(view.room, room), view.neighbours))


@dataclass(frozen=True)
class View:
    """What matters for the next step."""

    room: int
    at: Cell
    cells: list[int]
    has_key: bool
    goal_room: int
    """Where the key is, or, when it is not needed any more, the pearl."""
    treasure: Cell | None
    """The same, in this room."""
    crab: Cell | None
    rupees: list[Cell]

    @classmethod
    def of(cls, env: GameBoyEnv) -> View:
        def there(name: str) -> Cell | None:
            return (peek(f"{name}_x"), peek(f"{name}_y")) if peek(f"{name}_here") else None

        def peek(name: str) -> int:
            value = env.peek(name)
            assert isinstance(value, int)
            return value

        cells = env.peek("cells")
        assert isinstance(cells, list)
        needs_key = not peek("key") and not peek("door")
        return cls(
            room=peek("room"),
            at=(peek("x"), peek("y")),
            cells=cells,
            has_key=bool(peek("key")),
            goal_room=peek("key_room") if needs_key else PEARL_ROOM,
            treasure=there("key" if needs_key else "pearl"),
            crab=there("enemy"),
            rupees=[cell for cell in map(there, ("rupee_a", "rupee_b")) if cell is not None],
        )

    def exits(self) -> list[Cell]:
        """The cells outside through which the way to the goal goes on."""
        return _cells_to(self.room, shortest_way(self.room, [self.goal_room], _rooms_beside)[0])

    def neighbours(self, cell: Cell) -> list[Cell]:
        """Where one can go from here, and not be touched by the crab."""
        beside = [(cell[0] + move[0], cell[1] + move[1]) for move in MOVES.values()]
        return [other for other in beside if self._is_open(cell, other)]

    def _is_open(self, cell: Cell, other: Cell) -> bool:
        if not _is_inside(cell):
            return False
        if not _is_inside(other):
            return self._kind(cell) in (PAVED, GATE)
        is_free = self._kind(other) < ROCK or (self._kind(other) == GATE and self.has_key)
        return is_free and not self._is_near_crab(other)

    def _kind(self, cell: Cell) -> int:
        return self.cells[cell[1] * WIDTH + cell[0]]

    def _is_near_crab(self, cell: Cell) -> bool:
        if self.crab is None:
            return False
        return abs(cell[0] - self.crab[0]) + abs(cell[1] - self.crab[1]) <= 1


def shortest_way(
    start: Node, wanted: Collection[Node], neighbours: Callable[[Node], Iterable[Node]]
) -> list[Node]:
    """All nodes after the start up to the nearest wanted one; empty where there is no way."""
    before: dict[Node, Node] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for other in neighbours(node):
            if other == start or other in before:
                continue
            before[other] = node
            if other in wanted:
                return _traced(start, other, before)
            waiting.append(other)
    return []


def _traced(start: Node, end: Node, before: dict[Node, Node]) -> list[Node]:
    way = [end]
    while before[way[-1]] != start:
        way.append(before[way[-1]])
    return way[::-1]


def _is_inside(cell: Cell) -> bool:
    return 0 <= cell[0] < WIDTH and 0 <= cell[1] < HEIGHT


def _toward(cell: Cell, other: Cell) -> int:
    """The action that leads to a cell beside this one."""
    step = other[0] - cell[0], other[1] - cell[1]
    return ACTIONS.index(next(name for name, move in MOVES.items() if move == step))


def _cells_to(room: int, other: int) -> list[Cell]:
    """The cells just outside of a room that stand for the one beside it."""
    if abs(other - room) == 1:
        return [(WIDTH if other > room else -1, row) for row in range(HEIGHT)]
    return [(column, HEIGHT if other > room else -1) for column in range(WIDTH)]


def _rooms_beside(room: int) -> list[int]:
    return [two if one == room else one for one, two in DOORWAYS if room in (one, two)]
