"""What a run does beside learning, after an update: evaluate, keep checkpoints, heed signals.

Each is a callback of the loop, as users' own are.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from shoal.training.evaluate import Evaluation
from shoal.training.loop import Progress

LATEST = "latest_model"


class Every:
    """Tells when there are another so many, whether or not a run was broken off meanwhile.

    So many of whatever a run counts: of its episodes, or of its seconds.
    """

    def __init__(self, interval: float, begun_at: float = 0) -> None:
        self._interval = interval
        self._told = self._count(begun_at)

    def __call__(self, now: float) -> bool:
        before, self._told = self._told, self._count(now)
        return self._told > before

    def _count(self, now: float) -> int:
        return int(now // self._interval) if self._interval else 0


class Evaluate:
    """Evaluates now and then, and keeps the best: `keep` says whether it could."""

    def __init__(
        self,
        every: Every,
        evaluate: Callable[[], Evaluation],
        keep: Callable[[Evaluation], bool],
        best: float = -math.inf,
    ) -> None:
        self._every, self._evaluate, self._keep = every, evaluate, keep
        self.best, self._has_best = best, best > -math.inf
        self._latest: tuple[int, Evaluation] | None = None

    def __call__(self, run: Progress) -> None:
        if self._every(run.metrics["run/episodes"]):
            self.now(run)

    def now(self, run: Progress) -> Evaluation:
        """Evaluate at once, unless nothing was learnt since the last time."""
        if self._latest is not None and self._latest[0] == run.num_updates:
            return self._latest[1]
        found = self._evaluate()
        self._latest = run.num_updates, found
        run.write(found.metrics())
        if (found.mean > self.best or not self._has_best) and self._keep(found):
            self._has_best = True  # even if it is nan: then any other is better
            self.best = -math.inf if math.isnan(found.mean) else found.mean
        return found


class Doubt:
    """Says once that a run learns from what are no numbers."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._has_warned = False

    def __call__(self, run: Progress) -> None:
        odd = [name for name in DOUBTED if not math.isfinite(run.metrics.get(name, 0.0))]
        if odd and not self._has_warned:
            self._has_warned = True
            self._warn(
                f"at step {run.step} {' and '.join(odd)} cannot be told as numbers: rewards or "
                "observations are NaN or infinite, and nothing can be learnt from them. Look for "
                "it with `shoal check ENV`; the run goes on."
            )


DOUBTED = ("episode/return_mean", "train/policy_loss", "train/value_loss", "eval/return_mean")


class Save:
    """Writes checkpoints: one more every so many episodes, and one that is kept up to date.

    Episodes may be long, or never end: the second goes by the clock, and bounds what a run loses
    that is killed.
    """

    def __init__(self, by_episodes: Every, by_seconds: Every, save: Callable[[str], Any]) -> None:
        self._by_episodes, self._by_seconds, self._save = by_episodes, by_seconds, save

    def __call__(self, run: Progress) -> None:
        if self._by_episodes(run.metrics["run/episodes"]):
            self._save(f"checkpoint_ep{int(run.metrics['run/episodes'])}")
        if self._by_seconds(run.metrics["run/time_s"]):
            self._save(LATEST)


class Signals:
    """Ctrl-C and SIGTERM end a run after the update that is under way; a second one at once.

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
            _end_at_once(number)
        self.number = number
        self._tell("finishing this update, then saving; Ctrl-C again to stop at once")

    def __call__(self, run: Progress) -> None:
        if self.number is not None:
            run.stop(signal.Signals(self.number).name)


def _end_at_once(number: int) -> NoReturn:
    """As it would be if nobody had heeded the signal."""
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    raise KeyboardInterrupt
