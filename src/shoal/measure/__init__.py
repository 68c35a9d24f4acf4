"""Measuring: one timed loop for Shoal and every rival, the bound, and contests between them.

    job ──► child process ──► contestant.open(course) ──► session ──► time_steps ──► figures
    jobs ─► contest: round robin, so that a machine that drifts drifts for everyone

Read `session` (what a contestant is), `timing` (the loop), `bound`, `child`, `contest`, `summary`.
"""

from shoal.measure.bound import measure_bound
from shoal.measure.contest import Outcome, contest, run_job
from shoal.measure.fingerprint import Machine, fingerprint
from shoal.measure.job import BOUND, Figures, Job
from shoal.measure.record import Record, claim
from shoal.measure.session import (
    Contestant,
    Course,
    Mixed,
    NotPossible,
    Session,
    TransitionCount,
    VectorSession,
)
from shoal.measure.summary import Row, Spread, best, paired_ratio, summarise
from shoal.measure.timing import Pauses, Timing, sample_actions, time_pauses, time_steps

__all__ = [
    "BOUND",
    "Contestant",
    "Course",
    "Figures",
    "Job",
    "Machine",
    "Mixed",
    "NotPossible",
    "Outcome",
    "Pauses",
    "Record",
    "Row",
    "Session",
    "Spread",
    "Timing",
    "TransitionCount",
    "VectorSession",
    "best",
    "claim",
    "contest",
    "fingerprint",
    "measure_bound",
    "paired_ratio",
    "run_job",
    "sample_actions",
    "summarise",
    "time_pauses",
    "time_steps",
]
