"""What a person sees of a run: sinks for its metrics, curves and videos.

    loop ──► sink.write(step, metrics) ──► console · metrics.jsonl · TensorBoard · Weights & Biases
    metrics.jsonl ──► curves.png               environment 0 ──► videos/step-000012000.mp4

Read `sink` (the one contract), `metrics` (all the names), `jsonl`, `progress`, and the two ways to
look on: `console` and `lines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.monitor.curves import draw
from shoal.monitor.jsonl import JsonLines
from shoal.monitor.metrics import METRICS, describe
from shoal.monitor.progress import Undertaking
from shoal.monitor.sink import Metrics, Sink, Steadfast
from shoal.monitor.tensorboard import TensorBoard
from shoal.monitor.video import record_first
from shoal.monitor.wandb import WeightsAndBiases

if TYPE_CHECKING:
    from shoal.monitor.console import Console
    from shoal.monitor.lines import Lines

__all__ = [
    "METRICS",
    "Console",
    "JsonLines",
    "Lines",
    "Metrics",
    "Sink",
    "Steadfast",
    "TensorBoard",
    "Undertaking",
    "WeightsAndBiases",
    "describe",
    "draw",
    "record_first",
]


def __getattr__(name: str) -> Any:
    # These need rich, and a worker that films its environment does not.
    if name == "Console":
        from shoal.monitor.console import Console

        return Console
    if name == "Lines":
        from shoal.monitor.lines import Lines

        return Lines
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
