"""The rules: who is where, who may go where, what is seen, and what it is worth.

Cells are (x, y), x to the right and y upwards, from (0, 0). All chance comes from the generator
that is passed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from shoal.envs.gridworld.config import GridWorldConfig

Cell = tuple[int, int]
View = npt.NDArray[np.int8]
"""Rows from the top downwards, as in a picture."""

ACTIONS = ("right", "up", "left", "down", "stay")
MOVES: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1), (0, 0))

EMPTY, OBSTACLE, AGENT, TARGET = range(4)

CAUGHT, NOTHING, FIRST_VISIT = 1.0, -0.01, 0.025


class World:
    """The grid and all that is on it.

    Hunters that have left it keep their position, which their last observation shows, but stand in
    nobody's way.
    """

    def __init__(
        self,
        size: int,
        obstacles: Collection[Cell],
        positions: Mapping[str, Cell],
        target: Cell | None,
    ) -> None:
        self.size = size
        self.obstacles = frozenset(obstacles)
        self.positions = dict(positions)
        self.target = target
        self.hunting = set(positions)
        self.visited = {name: {cell} for name, cell in positions.items()}
        self._plan = np.full((size, size), EMPTY, dtype=np.int8)
        for x, y in self.obstacles:
            self._plan[size - 1 - y, x] = OBSTACLE

    def move(self, name: str, action: int) -> bool:
        """Go there, if it is possible; whether this hunter has not been on that cell before."""
        cell = _beside(self.positions[name], MOVES[action])
        if self._is_free(cell):
            self.positions[name] = cell
        cell, before = self.positions[name], self.visited[name]
        is_new = cell not in before
        before.add(cell)
        return is_new

    def leave(self, name: str) -> None:
        """This hunter is not on the grid any more."""
        self.hunting.discard(name)

    def has_caught(self, name: str) -> bool:
        return self.positions[name] == self.target

    def move_target(self, generator: np.random.Generator, probability: float) -> None:
        """To one of the free cells beside it, each as likely; it walks into no hunter."""
        if self.target is None or generator.random() >= probability:
            return
        beside = [_beside(self.target, move) for move in MOVES[:4]]
        free = [cell for cell in beside if self._is_free(cell)]
        if free:
            self.target = free[generator.integers(len(free))]

    def sees_target(self, name: str, fov: int) -> bool:
        return self.target is not None and _within(self.positions[name], self.target, fov)

    def is_noticed(self, name: str, box: int) -> bool:
        """Whether this hunter is in the square around the target."""
        return self.sees_target(name, box)

    def view(self, name: str, fov: int) -> View:
        """What is around a hunter, `fov` × `fov` cells; what is outside of the grid is blocked.

        The hunter itself, in the middle, is not shown.
        """
        reach = fov // 2
        x, y = self.positions[name]
        row, column = self.size - 1 - y, x
        seen = np.full((fov, fov), OBSTACLE, dtype=np.int8)
        top, left = max(row - reach, 0), max(column - reach, 0)
        part = self._plan[top : row + reach + 1, left : column + reach + 1]
        down, right = top - row + reach, left - column + reach
        seen[down : down + part.shape[0], right : right + part.shape[1]] = part
        for other in self.hunting - {name}:
            _mark(seen, (x, y), self.positions[other], AGENT)
        if self.target is not None:
            _mark(seen, (x, y), self.target, TARGET)
        return seen

    def _is_free(self, cell: Cell) -> bool:
        x, y = cell
        is_inside = 0 <= x < self.size and 0 <= y < self.size
        return (
            is_inside
            and cell not in self.obstacles
            and all(self.positions[name] != cell for name in self.hunting)
        )


def scatter(config: GridWorldConfig, generator: np.random.Generator) -> World:
    """Obstacles, then hunters and target on cells of their own, all by chance."""
    num_obstacles = config.num_obstacles if config.enable_obstacles else 0
    obstacles = _block(config.size, num_obstacles, generator)
    free = [cell for cell in _cells(config.size) if cell not in obstacles]
    num_taken = len(config.hunters) + (config.target is not None)
    taken = [free[index] for index in generator.permutation(len(free))[:num_taken]]
    positions = {hunter.name: cell for hunter, cell in zip(config.hunters, taken, strict=False)}
    return World(
        config.size, obstacles, positions, taken[-1] if config.target is not None else None
    )


def reward(world: World, name: str, fov: int, box: int, lambda_fov: float) -> float:
    """What a hunter gets for where it is: seeing is good, being noticed is not, catching is all."""
    if world.has_caught(name):
        return CAUGHT
    if world.is_noticed(name, box):
        return -lambda_fov
    if world.sees_target(name, fov):
        return 1 - lambda_fov
    return NOTHING


def _block(size: int, num_obstacles: int, generator: np.random.Generator) -> set[Cell]:
    """Cells without which all others stay connected: leaves of a tree that spans the grid."""
    blocked: set[Cell] = set()
    if not num_obstacles:
        return blocked
    tree = _spanning_tree(size, generator)
    leaves = [cell for cell, joined in tree.items() if len(joined) == 1]
    for chance in generator.random(num_obstacles):
        leaf = leaves.pop(int(chance * len(leaves)))
        blocked.add(leaf)
        for stem in tree.pop(leaf):
            tree[stem].remove(leaf)
            if len(tree[stem]) == 1:
                leaves.append(stem)
    return blocked


def _spanning_tree(size: int, generator: np.random.Generator) -> dict[Cell, set[Cell]]:
    """Neighbours joined in random order, unless they are connected already (Kruskal)."""
    tree: dict[Cell, set[Cell]] = {cell: set() for cell in _cells(size)}
    pairs = [
        (cell, other)
        for cell in tree
        for other in (_beside(cell, move) for move in MOVES[:2])
        if other in tree
    ]
    parts = {cell: [cell] for cell in tree}
    for index in generator.permutation(len(pairs)):
        one, other = pairs[index]
        small, large = sorted((parts[one], parts[other]), key=len)
        if small is not large:
            tree[one].add(other)
            tree[other].add(one)
            large.extend(small)
            parts.update(dict.fromkeys(small, large))
    return tree


def _cells(size: int) -> list[Cell]:
    return list(itertools.product(range(size), range(size)))


def _beside(cell: Cell, move: Cell) -> Cell:
    return cell[0] + move[0], cell[1] + move[1]


def _within(cell: Cell, middle: Cell, side: int) -> bool:
    reach = side // 2
    return abs(cell[0] - middle[0]) <= reach and abs(cell[1] - middle[1]) <= reach


def _mark(seen: View, middle: Cell, cell: Cell, what: int) -> None:
    if _within(cell, middle, len(seen)):
        reach = len(seen) // 2
        seen[reach - (cell[1] - middle[1]), reach + cell[0] - middle[0]] = what
