"""Gymnasium's own: all in this process, or one process for each environment.

As they come, they copy observations at each step; "views" are those with `copy=False`.
"""

from __future__ import annotations

from functools import partial

from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from shoal.measure.session import Contestant, Course, Session, VectorSession


def _open_sync(copy: bool, course: Course) -> Session:
    return VectorSession(SyncVectorEnv(list(course.factories), copy=copy))


def _open_async(context: str | None, copy: bool, course: Course) -> Session:
    return VectorSession(AsyncVectorEnv(list(course.factories), context=context, copy=copy))


CONTESTANTS = (
    Contestant("gymnasium sync", partial(_open_sync, True)),
    Contestant("gymnasium sync views", partial(_open_sync, False)),
    Contestant("gymnasium async", partial(_open_async, None, True)),
    Contestant("gymnasium async views", partial(_open_async, None, False)),
    # For start-up times: a default that forks is no choice for who has threads or CUDA.
    Contestant("gymnasium async spawn", partial(_open_async, "spawn", True), only_starts=True),
)
