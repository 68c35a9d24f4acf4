"""AgileRL: teams, a process for each environment; same-step resets."""

from __future__ import annotations

from shoal.measure.session import Contestant, Course, Session
from shoal.measure.several import AgentsSession, team_space


def _open(course: Course) -> Session:
    from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv

    envs = AsyncPettingZooVecEnv(list(course.factories), context="fork")
    return AgentsSession(envs, team_space(envs))


CONTESTANTS = (Contestant("agilerl async", _open, needs="agilerl", plays=("team",)),)
