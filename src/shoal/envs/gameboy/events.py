"""What happens in a game, told from named values before and after a step, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

KINDS: dict[str, Callable[[int, int, int], int]] = {
    "rise": lambda before, after, _: max(after - before, 0),
    "fall": lambda before, after, _: max(before - after, 0),
    "change": lambda before, after, _: int(before != after),
    "set_bits": lambda before, after, _: (after & ~before).bit_count(),
    "reach": lambda before, after, value: int(before != value == after),
}
"""How often an event has happened in a step. `reach` asks for one value in particular."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that can happen to a field."""

    name: str
    kind: str
    field: str
    value: int = 0
    reward: float = 0.0
    ends: bool = False
    """Whether the episode is over (terminated) with it."""

    def count(self, before: int, after: int) -> int:
        return KINDS[self.kind](before, after, self.value)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that happened in one step."""

    counts: dict[str, int]
    reward: float
    ended: bool


NOTHING = Outcome({}, 0.0, False)


class Judge:
    """Tells events and sums up what they are worth."""

    def __init__(
        self, events: Sequence[Event], index: Mapping[str, int], weights: Mapping[str, float]
    ) -> None:
        self._plans = [
            (event, index[event.field], weights.get(event.name, event.reward)) for event in events
        ]

    @property
    def rewards_anything(self) -> bool:
        return any(weight for _, _, weight in self._plans)

    def outcome(self, before: Sequence[int], after: Sequence[int]) -> Outcome:
        """What has happened from one reading of all fields to the next."""
        if before == after:
            return NOTHING
        counts: dict[str, int] = {}
        reward, ended = 0.0, False
        for event, at, weight in self._plans:
            count = event.count(before[at], after[at]) if before[at] != after[at] else 0
            if count:
                counts[event.name] = count
                reward += weight * count
                ended = ended or event.ends
        return Outcome(counts, reward, ended)
