"""What a run does beside learning, after an update: evaluate, keep checkpoints, heed signals.

Each is a callback of the loop, as users' own are.
"""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shoal.training.evaluate import Evaluation
from shoal.training.loop import Progress


class Every:
    """Tells when so many more episodes have ended."""

    def __init__(self, interval: int, num_episodes: int = 0) -> None:
        self._interval = interval
        self._next = num_episodes + interval

    def __call__(self, num_episodes: float) -> bool:
        if not self._interval or num_episodes < self._next:
            return False
        self._next += self._interval * (1 + int((num_episodes - self._next) // self._interval))
        return True


class Evaluate:
    """Evaluates now and then, and keeps the best."""

    def __init__(
        self, every: Every, evaluate: Callable[[], Evaluation], keep: Callable[[], None]
    ) -> None:
        self._every, self._evaluate, self._keep = every, evaluate, keep
        self.best = -math.inf
        self.latest: Evaluation | None = None

    def __call__(self, run: Progress) -> None:
        if self._every(run.metrics["run/episodes"]):
            self.now(run)

    def now(self, run: Progress) -> Evaluation:
        """Evaluate at once."""
        self.latest = found = self._evaluate()
        run.write(found.metrics())
        if found.mean > self.best:
            self.best = found.mean
            self._keep()
        return found


class Save:
    """Writes a checkpoint now and then."""

    def __init__(self, every: Every, save: Callable[[str], Any]) -> None:
        self._every, self._save = every, save

    def __call__(self, run: Progress) -> None:
        if self._every(run.metrics["run/episodes"]):
            self._save(f"checkpoint_ep{int(run.metrics['run/episodes'])}")


class Signals:
    """Ctrl-C and SIGTERM end a run after the update that is under way; a second Ctrl-C at once.

    What was collected for half an update belongs to no checkpoint: one that is written in the
    middle could not be gone on from exactly.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self.number: int | None = None

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Heed them for a while; where that is not possible (in another thread) nothing changes."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, self._note) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, _: Any) -> None:
        if self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        self._tell("finishing this update, then saving; Ctrl-C again to stop at once")

    def __call__(self, run: Progress) -> None:
        if self.number is not None:
            run.stop(signal.Signals(self.number).name)
