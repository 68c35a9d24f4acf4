"""Gymnasium's own: all in this process, or one process for each environment."""

from __future__ import annotations

from functools import partial

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from shoal.measure.session import Contestant, Course, Session, VectorSession


def _open_sync(course: Course) -> Session:
    return VectorSession(SyncVectorEnv(list(course.factories)))


def _open_async(context: str | None, course: Course) -> Session:
    return VectorSession(AsyncVectorEnv(list(course.factories), context=context))


CONTESTANTS = (
    Contestant("gymnasium sync", _open_sync),
    Contestant("gymnasium async", partial(_open_async, None)),
    # For start-up times: a default that forks is no choice for who has threads or CUDA.
    Contestant("gymnasium async spawn", partial(_open_async, "spawn"), only_starts=True),
)
