"""PettingZoo itself vectorises nothing: a plain loop over its environments, in this process."""

from __future__ import annotations

from shoal.measure.session import Contestant
from shoal.measure.several import PlainSession

CONTESTANTS = (
    Contestant("pettingzoo loop", PlainSession, needs="pettingzoo", plays=("team", "turns")),
)
