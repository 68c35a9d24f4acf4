"""Incidents: what went wrong, what was done about it, and the capsule that is left of it."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.engine import capsule
from shoal.engine.books import Books
from shoal.engine.capsule import Capsule
from shoal.engine.commands import Call, Command, Failure, Reset, SetAttr, Step
from shoal.engine.plan import PoolPlan
from shoal.errors import WorkerError


@dataclass(slots=True)
class Incident:
    """Something that went wrong, and what was done about it."""

    time: float
    kind: str
    """"died", "hung", "raised" or "grown"."""
    worker: int
    env_ids: tuple[int, ...]
    """The environments that were lost."""
    env_id: int | None
    """The one that was being stepped, reset or built; None if none was."""
    phase: str
    cause: str
    outcome: str = "raised"
    """"raised", "restarted", "replayed" or "recycled"."""
    took_s: float = 0.0
    """Until its environments were back."""
    capsule: str | None = None


def leave_capsule(
    plan: PoolPlan, books: Books, incident: Incident, command: Command, trace: str
) -> str | None:
    """Write a capsule of what an environment did when it failed; its path, if that succeeds."""
    env_id = incident.env_id
    assert env_id is not None
    is_fresh = books.journal.entries[env_id].is_fresh
    how = (None if is_fresh else books.replay_of(env_id)) or books.standing_of(env_id)
    # A step of an environment that was just restarted can do nothing but reset it.
    phase = "reset" if is_fresh and incident.phase == "step" else incident.phase
    return capsule.write(
        Capsule(
            kind=incident.kind,
            phase=phase,
            cause=incident.cause,
            trace=trace,
            worker=incident.worker,
            env_id=env_id,
            factory=plan.assign(incident.worker, [env_id]).factories[0],
            attributes=how.attributes,
            seed=how.seed,
            num_episodes=0 if is_fresh else how.num_episodes,
            episode=how.episode,
            action=books.action_of(env_id, command) if isinstance(command, Step) else None,
            reset=command.args.get(env_id) if isinstance(command, Reset) else how.next_reset,
            call=command if isinstance(command, Call | SetAttr) else None,
            generator=books.generator_of(env_id) if how.episode is None else None,
            mode=plan.terms.autoreset,
            check_finite=plan.terms.check_finite,
        )
    )


def leave_construction(
    plan: PoolPlan, worker: int, env_id: int, error: WorkerError, failure: Failure | None = None
) -> None:
    """Write a capsule of a constructor that raised, or took its worker with it, at the start."""
    path = capsule.write(
        Capsule(
            kind="died" if failure is None else "raised",
            phase="construct",
            cause=str(error) if failure is None else f"{failure.kind}: {failure.text}",
            trace="" if failure is None else failure.trace,
            worker=worker,
            env_id=env_id,
            factory=plan.assign(worker, [env_id]).factories[0],
            attributes={},
            seed=None,
            num_episodes=0,
            episode=None,
        )
    )
    point_to(path, error)


def point_to(path: str | None, error: Exception) -> None:
    """Let an error say how what went wrong is done once more."""
    if path is not None:
        error.add_note(f"To replay it in one process: shoal replay {path}")
    if isinstance(error, WorkerError):
        error.capsule = path
