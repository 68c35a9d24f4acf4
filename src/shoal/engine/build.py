"""Building: from factories to cells, and what the caller must know of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from shoal.engine.cells import BatchedCell, Cell
from shoal.engine.commands import MARK_ENV, Assignment, Built
from shoal.errors import ConfigError

Cells = list[Cell] | list[BatchedCell]


def build(assignment: Assignment, mark: memoryview) -> Cells:
    """Make environments.

    How many a factory call makes shows when the first has been made; nothing is built to be
    looked at. What a factory raises gets out, with the number of its environment as `env_id`.
    """
    cells: Any = []
    if not assignment.ids():
        return []
    try:
        mark[MARK_ENV] = assignment.ids()[0]
        first = assignment.factories[0]()
        env_ids = _ids_for(first, assignment)
        cells.append(_cell_for(first, env_ids[0]))
        width = len(cells[0].env_ids)
        for env_id in env_ids[width::width]:
            mark[MARK_ENV] = env_id
            factories = assignment.factories
            factory = factories[len(cells) if assignment.one_each else 0]
            cells.append(_cell_for(factory(), env_id))
        _check_alike(cells)
    except BaseException as error:
        for cell in cells:
            with contextlib.suppress(Exception):
                cell.env.close()
        with contextlib.suppress(Exception):
            error.env_id = mark[MARK_ENV]  # type: ignore[attr-defined]
        raise
    return cells  # type: ignore[no-any-return]


def _ids_for(env: Any, assignment: Assignment) -> Sequence[int]:
    """The ids of this share, now that it is known how many environments `env` counts as."""
    width = env.num_envs if isinstance(env, VectorEnv) else 1
    num_envs, num_workers = assignment.num_envs, assignment.num_workers
    if width > 1 and assignment.one_each:
        raise ConfigError(
            f"a factory in a list makes one environment each, but this one makes a vector "
            f"environment of {width}. Pass a single factory and num_envs instead."
        )
    if assignment.env_ids is not None:
        return assignment.env_ids
    if num_envs % width:
        raise ConfigError(
            f"a vector environment of {width} counts as {width} environments, and "
            f"num_envs={num_envs} is no multiple of that. Choose one that is."
        )
    if num_envs // width < num_workers:
        problem = TooManyWorkers(
            f"num_envs={num_envs} are {num_envs // width} vector environments of {width}, too few "
            f"for {num_workers} workers. Ask for num_workers={num_envs // width} at most."
        )
        problem.fits = num_envs // width
        raise problem
    return assignment.ids(width)


class TooManyWorkers(ConfigError):
    """There are fewer vector environments than workers; `fits` workers would be right."""

    fits: int


def _check_alike(cells: Sequence[Any]) -> None:
    kinds = {(type(cell), len(cell.env_ids)) for cell in cells}
    if len(kinds) > 1:
        raise ConfigError(
            "the factories give environments of different kinds: "
            f"{sorted(f'{kind.__name__} of {width}' for kind, width in kinds)}. All must be alike."
        )


def _cell_for(env: Any, env_id: int) -> Cell | BatchedCell:
    if isinstance(env, VectorEnv):
        return BatchedCell(env, env_id)
    if isinstance(env, gymnasium.Env) or _looks_like_env(env):
        return Cell(env, env_id)
    if several := of_several(env):
        raise ConfigError(
            f"env {env_id} is a {type(env).__name__}, {several[0]} (PettingZoo). "
            f"Use shoal.{several[1]}(...) for it."
        )
    raise ConfigError(
        f"env {env_id} is a {type(env).__name__}, not a gymnasium.Env: the factory must return one."
    )


def of_several(env: Any) -> tuple[str, str] | None:
    """What an environment of several agents is, and which function is for it; None for others."""
    if hasattr(env, "agent_selection") or hasattr(env, "agent_iter"):
        return "agents taking turns", "make_turns"
    if hasattr(env, "possible_agents") or hasattr(env, "agents"):
        return "a team of agents", "make_team"
    return None


def _looks_like_env(env: Any) -> bool:
    names = ("reset", "step", "observation_space", "action_space")
    return all(hasattr(env, name) for name in names) and not callable(env.observation_space)


def describe(cells: Cells) -> Built:
    """What the caller must know before it can make rows."""
    env = cells[0].env
    first = (cells[0].observation_space, cells[0].action_space)
    pairs = [(cell.observation_space, cell.action_space) for cell in cells]
    return Built(
        # Equal spaces as one object: it is pickled once then.
        spaces=tuple(first if pair == first else pair for pair in pairs),
        widths=tuple(len(cell.env_ids) for cell in cells),
        env_ids=tuple(env_id for cell in cells for env_id in cell.env_ids),
        metadata=dict(getattr(env, "metadata", None) or {}),
        render_mode=getattr(env, "render_mode", None),
    )
