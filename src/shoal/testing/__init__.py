"""For those who write environments, and for those who vectorise them.

Two checkers that explain every breach of a contract, a world in which misrouted data shows, and
environments that fail on purpose.
"""

from __future__ import annotations

from shoal.testing.check import check_env
from shoal.testing.check_vector import check_vector_env
from shoal.testing.forms import CountingRecord, decode
from shoal.testing.report import Finding, Report
from shoal.testing.saboteurs import Saboteur
from shoal.testing.worlds import CountingWorld

__all__ = [
    "CountingRecord",
    "CountingWorld",
    "Finding",
    "Report",
    "Saboteur",
    "check_env",
    "check_vector_env",
    "decode",
]
