"""What holds a pool back, in words: its environments, the transport to them, or the caller.

Of the time that a pool has lived, its workers were *busy* with environments, its caller was
*waiting* for them, and else it was *elsewhere*: at a policy, at learning, at nothing. Where
environments step together a wait is as long as the busiest worker needs, and what is left of it is
transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ENOUGH_ROUNDS = 20
"""Steps of each environment before anything is said."""
_FULL = 0.8
"""Workers that are busy for so much of the time could hardly do more."""
_UNEVEN = 0.7
"""Workers are uneven where the mean is below this share of the busiest."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How the time of a pool was spent, each as a share of its life."""

    waiting: float
    """Of the caller, for workers."""
    busy: Sequence[float]
    """Of each worker, with its environments."""
    rounds: float
    """How many steps each environment has taken."""
    in_caller: bool = False
    """Whether there are no workers beside the caller."""

    @property
    def elsewhere(self) -> float:
        return max(0.0, 1.0 - self.waiting)

    @property
    def mean(self) -> float:
        return sum(self.busy) / len(self.busy)

    @property
    def transport(self) -> float:
        return max(0.0, self.waiting - max(self.busy))


def bottleneck(shares: Shares) -> str:
    """One line: what holds the pool back, the figures behind that, and what would help."""
    if shares.rounds < ENOUGH_ROUNDS:
        return f"not known before {ENOUGH_ROUNDS} steps of each environment"
    what, advice = _judge(shares)
    figures = (
        f"workers busy {shares.mean:.0%}, caller waiting {shares.waiting:.0%} "
        f"(transport {shares.transport:.0%}), caller elsewhere {shares.elsewhere:.0%}"
    )
    return f"{what}: {figures}. {advice}"


def _judge(shares: Shares) -> tuple[str, str]:
    top = max(shares.busy)
    if shares.mean < _FULL and shares.elsewhere >= max(top, shares.transport):
        return "the caller", "Steps wait for what is done between them; more workers will not help."
    if shares.mean < _FULL and shares.transport > top:
        help_ = "Steps are cheap: have more environments in each worker, or fewer workers."
        return "transport", help_
    if shares.in_caller:
        return "the environments", "They step one after another; workers would step side by side."
    if shares.mean < _UNEVEN * top:
        uneven = f"The busiest worker is at {top:.0%}: send and recv do not wait for the slowest."
        return "the environments", uneven
    return "the environments", "Their steps take the time; more cores would help."
