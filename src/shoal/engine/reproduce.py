"""Reproducing: what a capsule tells of, done again in this process.

The failing command runs through a real cell, so that bad data, automatic resets and their failures
come out as they did in the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shoal.engine import generators
from shoal.engine.build import build
from shoal.engine.capsule import Capsule
from shoal.engine.cells import Cell, Desk
from shoal.engine.commands import Assignment, Call, ResetArgs, SetAttr, private_mark
from shoal.engine.infos import Columns, InfoWriter
from shoal.engine.retrace import difference, retrace
from shoal.engine.rows import Rows, RowShape
from shoal.errors import ConfigError
from shoal.layout import Layout


@dataclass(slots=True)
class Outcome:
    """What came of an incident that was taken again."""

    env: Any = None
    """The environment, as it was left; to be closed by whoever is done with it."""
    phase: str = "construct"
    """How far it got: "construct", "replay" (the recorded steps), or the phase of the capsule."""
    length: int = 0
    """Recorded steps that were taken."""
    problem: str = ""
    """How the replay differed from the record, if it did."""
    error: BaseException | None = field(default=None, repr=False)
    """What was raised, Ctrl-C included; None if nothing was."""


OnStep = Callable[[Any, int], None]
"""Called with the environment, and the number of its steps, after its reset and each of them."""


def _ignore(env: Any, length: int) -> None:
    pass


def reproduce(capsule: Capsule, *, on_step: OnStep = _ignore) -> Outcome:
    """Do in this process what the worker did, up to the command that failed, and that too.

    Where the worker died this process may die as well, and where it hung it may hang.
    """
    _check_complete(capsule)
    outcome = Outcome()
    try:
        _play(capsule, outcome, on_step)
    except BaseException as error:  # whatever an environment may raise, and where it hung
        if isinstance(error, ConfigError) and outcome.phase == "construct":
            raise
        outcome.error = error
    return outcome


def _check_complete(capsule: Capsule) -> None:
    is_needed = capsule.num_episodes > 0 and capsule.phase not in ("construct", "reset")
    if is_needed and capsule.episode is None:
        raise ConfigError(
            f"the {capsule.phase} that failed cannot be reached: the capsule has no complete "
            "record of the episode before it, which was longer than replay_limit_steps. Raise "
            "that limit: shoal.make(..., faults=shoal.Faults(replay_limit_steps=...))."
        )


def _play(capsule: Capsule, outcome: Outcome, on_step: OnStep) -> None:
    assignment = Assignment(0, 1, 1, [capsule.factory], env_ids=[0])
    (cell,) = build(assignment, private_mark())
    outcome.env = cell.env
    if capsule.phase == "construct":
        return
    if not isinstance(cell, Cell):
        raise ConfigError(
            f"env {capsule.env_id} is part of a vector environment, whose steps are taken together "
            "and cannot be replayed for one of them. Its capsule.json says what happened."
        )
    cell.attach(_desk(cell, capsule))
    for name, value in capsule.attributes.items():
        cell.set_attr(name, {0: value})
    outcome.phase = "replay"
    if _approach(cell, capsule, outcome, on_step):
        outcome.phase = capsule.phase
        _repeat(cell, capsule)


def _desk(cell: Cell, capsule: Capsule) -> Desk:
    """Rows for one environment, so that its data is checked as it was in the worker."""
    observation, action = Layout(cell.observation_space), Layout(cell.action_space)
    rows = Rows(RowShape(1, 1, observation, action, keeps_finals=True))
    infos = InfoWriter(Columns(rows), slice(0, 1))
    return Desk(
        rows=rows,
        infos=infos,
        note=lambda key, text: None,
        stamp=lambda: None,
        mode=capsule.mode,
        check_finite=capsule.check_finite,
        flagged=set(),
        final_scalars={},
        generators={},
    )


def _approach(cell: Cell, capsule: Capsule, outcome: Outcome, on_step: OnStep) -> bool:
    """Bring the environment to where it failed; whether that is where it is."""
    episode, last = capsule.episode, None
    if episode is None:
        generators.put_back(
            getattr(cell.env, "unwrapped", cell.env), capsule.generator, capsule.seed
        )
        return True
    for last in retrace(
        cell.env,
        episode,
        Layout(cell.action_space),
        seed=capsule.seed,
        set_attr=lambda name, value: cell.set_attr(name, {0: value}),
        watch=lambda step: None,
    ):
        outcome.length = last.length
        on_step(cell.env, last.length)
    assert last is not None
    outcome.problem, cell.over = difference(last, episode), last.ended
    return episode.is_over or not last.ended


def _repeat(cell: Cell, capsule: Capsule) -> None:
    """Do what failed; nothing, where that was the replay itself."""
    call = capsule.call
    if capsule.phase == "step":
        cell.next_reset = capsule.reset
        cell.step(0, capsule.action)
    elif capsule.phase == "reset":
        cell.reset(0, [capsule.reset or ResetArgs()])
    elif capsule.phase == "close":
        cell.env.close()
    elif capsule.phase == "call" and isinstance(call, Call):
        cell.call([0], call.name, call.args, call.kwargs)
    elif capsule.phase == "set_attr" and isinstance(call, SetAttr):
        cell.set_attr(call.name, {0: call.values[capsule.env_id]})
