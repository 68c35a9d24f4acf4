"""Building a worker's share: from factories to cells, and what the caller must know of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from shoal.engine.cells import BatchedCell, Cell
from shoal.engine.commands import MARK_ENV, MARK_PHASE, PHASES, Built, Factory, private_mark
from shoal.engine.worker import Share
from shoal.errors import ConfigError


def build(
    factories: Sequence[Factory],
    first_id: int,
    count: int,
    catch: type[BaseException],
    mark: memoryview | None = None,
    timed: bool = False,
) -> Share:
    """Make the `count` environments of a share, from one factory for each or one for all.

    What a factory raises gets out, with the number of its environment as `env_id`.
    """
    mark = private_mark() if mark is None else mark
    mark[MARK_PHASE] = PHASES.index("construct")
    cells: list[Any] = []
    built = 0
    try:
        while built < count:
            mark[MARK_ENV] = first_id + built
            factory = factories[built] if len(factories) > 1 else factories[0]
            cells.append(_cell_for(factory(), first_id + built))
            built += len(cells[-1].env_ids)
        _check_fits(cells, built, count)
    except BaseException as error:
        for cell in cells:
            with contextlib.suppress(Exception):
                cell.env.close()
        with contextlib.suppress(Exception):
            error.env_id = mark[MARK_ENV]  # type: ignore[attr-defined]
        raise
    mark[MARK_PHASE] = 0
    return Share(cells, catch, mark, timed)


def _check_fits(cells: Sequence[Any], built: int, count: int) -> None:
    if len({type(cell) for cell in cells}) > 1:
        raise ConfigError("some factories give plain environments, others vector environments.")
    if built > count:
        width = len(cells[-1].env_ids)
        raise ConfigError(
            f"a vector environment of {width} counts as {width} environments, and a worker's share "
            f"of {count} is no multiple of that. Choose num_envs and num_workers so that it is."
        )


def _cell_for(env: Any, env_id: int) -> Cell | BatchedCell:
    if isinstance(env, VectorEnv):
        return BatchedCell(env, env_id)
    if isinstance(env, gymnasium.Env) or _looks_like_env(env):
        return Cell(env, env_id)
    if hasattr(env, "agent_selection") or hasattr(env, "agent_iter"):
        raise ConfigError(
            _NOT_HERE.format(env_id, type(env).__name__, "agents taking turns", "make_turns")
        )
    if hasattr(env, "possible_agents") or hasattr(env, "agents"):
        raise ConfigError(
            _NOT_HERE.format(env_id, type(env).__name__, "a team of agents", "make_team")
        )
    raise ConfigError(
        f"env {env_id} is a {type(env).__name__}, not a gymnasium.Env: the factory must return one."
    )


_NOT_HERE = "env {} is a {}, {} (PettingZoo). Use shoal.{}(...) for it."


def _looks_like_env(env: Any) -> bool:
    names = ("reset", "step", "observation_space", "action_space")
    return all(hasattr(env, name) for name in names) and not callable(env.observation_space)


def describe(share: Share) -> Built:
    """What the caller must know before it can make rows."""
    env = share.cells[0].env
    first = (share.cells[0].observation_space, share.cells[0].action_space)
    pairs = [(cell.observation_space, cell.action_space) for cell in share.cells]
    return Built(
        # Equal spaces as one object: it is pickled once then.
        spaces=tuple(first if pair == first else pair for pair in pairs),
        widths=tuple(len(cell.env_ids) for cell in share.cells),
        metadata=dict(getattr(env, "metadata", None) or {}),
        render_mode=getattr(env, "render_mode", None),
    )
