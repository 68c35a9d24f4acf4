"""The one contract between a run and whatever shows it, and how a run outlives a full disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

Metrics = Mapping[str, float]
"""Numbers by "group/name"; `shoal.monitor.METRICS` says what the known ones mean."""

logger = logging.getLogger("shoal")


class Sink(Protocol):
    """Somewhere for metrics to go; its `str` says where that is."""

    def write(self, step: int, metrics: Metrics) -> None:
        """Take what is known after `step` environment steps; steps never go back."""

    def close(self) -> None:
        """Finish what was written; safe twice."""


class Steadfast:
    """A sink whose trouble with files does not end the run: an OSError is logged, not raised.

    One warning when it begins to fail, silence while it fails, one more when it works again.
    Every write is tried; what could not be written is not kept.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._num_missed = 0

    def __str__(self) -> str:
        return str(self._sink)

    def write(self, step: int, metrics: Metrics) -> None:
        if self._attempt(lambda: self._sink.write(step, metrics)):
            self._recover()

    def close(self) -> None:
        self._attempt(self._sink.close)

    def _attempt(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except OSError as problem:
            if not self._num_missed:
                logger.warning(
                    "cannot write metrics to %s: %s. The run goes on without them; "
                    "each further write is tried, and it is said here when one succeeds.",
                    self._sink,
                    problem,
                )
            self._num_missed += 1
            return False
        return True

    def _recover(self) -> None:
        if self._num_missed:
            logger.warning(
                "metrics are written to %s again; missing there: %d.", self._sink, self._num_missed
            )
        self._num_missed = 0
