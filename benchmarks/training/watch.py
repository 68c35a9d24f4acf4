"""Watching a training from outside: told of every update, it says when that was enough.

What it finds is taken between two updates, so nothing is added to what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from benchmarks.training.task import Numbers, Task
from shoal.measure import processes

EPISODES = 100
"""How many a mean return is of; before there are as many it does not count."""

Clock = Callable[[], float]


class Enough(BaseException):
    """Raised out of a training that has been measured; nothing of it is to be kept."""


class Moment(NamedTuple):
    """A training just after an update."""

    step: int
    shares: Mapping[str, float] = {}
    """What this update was spent on, as far as that is known."""
    num_episodes: int = 0
    mean_return: float = 0.0
    """Of the latest hundred."""


class Watch(Protocol):
    """Told of every update."""

    numbers: Numbers

    def mark(self, moment: Moment) -> bool:
        """An update is over; whether that was enough."""


def watch_for(task: Task, begun: float) -> Watch:
    """`begun` is when the process was started, by `time.monotonic`."""
    return Pace(task, begun) if task.threshold is None else Threshold(task, begun)


class Pace:
    """Steps per second from the end of the first update on, and what the time went to."""

    def __init__(self, task: Task, begun: float, clock: Clock = time.monotonic) -> None:
        self._task, self._begun, self._clock = task, begun, clock
        self._first: tuple[float, int] | None = None
        self._before = begun
        self._load = Load()
        self._spent: dict[str, float] = {}
        self._num_updates = 0
        self.numbers: Numbers = {}

    def mark(self, moment: Moment) -> bool:
        now, before = self._clock(), self._before
        self._before = now
        if self._first is None:
            self._first, self._load = (now, moment.step), Load()
            return False
        self._num_updates += 1
        for name, share in moment.shares.items():
            self._spent[name] = self._spent.get(name, 0.0) + share * (now - before)
        first, step = self._first
        if moment.step - step < self._task.steps:
            return False
        self.numbers = self._found(moment.step, step, now - first, first - self._begun)
        return True

    def _found(self, step: int, first_step: int, wall_s: float, start_s: float) -> Numbers:
        return {
            "steps_per_s": (step - first_step) / wall_s,
            "whole_s": start_s + wall_s,
            "whole_steps": step,
            "start_s": start_s,
            "update_s": wall_s / self._num_updates,
            **{name: seconds / wall_s for name, seconds in self._spent.items()},
            **self._load.found(wall_s, step - first_step),
        }


class Threshold:
    """How long it takes until a hundred episodes are good on average."""

    def __init__(self, task: Task, begun: float, clock: Clock = time.monotonic) -> None:
        self._task, self._begun, self._clock = task, begun, clock
        self._load = Load()
        self.numbers: Numbers = {}

    def mark(self, moment: Moment) -> bool:
        now_s = self._clock() - self._begun
        self.numbers.setdefault("start_s", now_s)
        self.numbers |= {"whole_s": now_s, "whole_steps": moment.step}
        is_enough = self._is_enough(moment, now_s)
        if is_enough:
            self.numbers |= self._load.found(now_s, moment.step)
        return is_enough

    def _is_enough(self, moment: Moment, now_s: float) -> bool:
        if moment.num_episodes >= EPISODES:
            best = self.numbers.get("best", moment.mean_return)
            self.numbers["best"] = max(best, moment.mean_return)
            if moment.mean_return >= (self._task.threshold or 0.0):
                self.numbers |= {"reached_s": now_s, "reached_steps": moment.step}
                return True
        return moment.step >= self._task.steps


class Load:
    """What this training takes of the processors, and what others do, from here on."""

    def __init__(self) -> None:
        self._busy_s, self._own_s = processes.busy_s(), _taken_s()

    def found(self, wall_s: float, steps: int) -> Numbers:
        """Nothing where it cannot be known."""
        busy_s, own_s = processes.busy_s(), _taken_s()
        if busy_s is None or own_s is None or self._busy_s is None or self._own_s is None:
            return {}
        busy_s, own_s = busy_s - self._busy_s, own_s - self._own_s
        return {
            "cpu_s_per_million": own_s / steps * 1e6,
            "others_cpu": max(0.0, (busy_s - own_s) / wall_s),
        }


def _taken_s() -> float | None:
    """By this process and all below it."""
    below_s = processes.cpu_s(processes.descendants())
    return None if below_s is None else below_s + time.process_time()
