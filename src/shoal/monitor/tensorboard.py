"""TensorBoard event files, written in the caller's thread.

TensorBoard's own writer has a thread, which an error ends for good and reports on the screen. One
record for each call is cheap enough to do without, and then an OSError is the caller's to see.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from shoal.extras import needs
from shoal.monitor.metrics import METRICS
from shoal.monitor.sink import Metrics

_numbers = itertools.count()
"""Of the event files of this process: their names must differ, and sort as they were made."""


class TensorBoard:
    """A sink for event files in a folder, which is made with the first write.

    A resumed run names the step that it goes on from: `purge_after` hides what an earlier one has
    written beyond it. ConfigError where tensorboard is not installed.
    """

    def __init__(self, folder: str | Path, purge_after: int | None = None) -> None:
        with needs("tensorboard", "train"):
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        self._event_type: Any = event_pb2.Event
        self._summary_type: Any = summary_pb2.Summary
        self._writer_type: Any = RecordWriter
        self._folder = Path(folder)
        self._purge_after = purge_after
        self._records: Any = None
        self._described: set[str] = set()

    def __str__(self) -> str:
        return str(self._folder)

    def write(self, step: int, metrics: Metrics) -> None:
        try:
            if self._records is None:
                self._open()
            values = [self._value(name, float(number)) for name, number in metrics.items()]
            self._put(step=int(step), summary=self._summary_type(value=values))
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        records, self._records = self._records, None
        if records is not None:
            records.close()

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
        path = self._folder / f"{name}.{os.getpid()}.{next(_numbers):06d}"
        self._records = self._writer_type(open(path, "xb"))  # noqa: SIM115  (it stays open)
        self._described.clear()
        self._put(file_version="brain.Event:2")
        if self._purge_after is not None:
            start = {"status": 1}  # SessionLog.START: what came before from this step on is void
            self._put(step=self._purge_after + 1, session_log=start)
            self._purge_after = None

    def _put(self, **content: Any) -> None:
        event = self._event_type(wall_time=time.time(), **content)
        self._records.write(event.SerializeToString())
        self._records.flush()

    def _value(self, name: str, number: float) -> Any:
        """A number; the first of its name in a file comes with its meaning."""
        value = self._summary_type.Value(tag=name, simple_value=number)
        if name in METRICS and name not in self._described:
            value.metadata.summary_description = METRICS[name]
            self._described.add(name)
        return value

    def _abandon(self) -> None:
        """Leave a file whose end may be torn; TensorBoard reads on in the next one."""
        with suppress(OSError):
            self.close()
