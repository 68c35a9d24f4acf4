"""What is asked of a measuring process, and what it answers: both travel as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

BOUND = "bound"
"""The contestant who communicates with nobody."""


class Place(NamedTuple):
    """Where contestants meet: whose figures may be compared."""

    env: str
    num_envs: int


@dataclass(frozen=True, slots=True)
class Job:
    """One measurement of one contestant."""

    contestant: str
    """A name that `shoal.measure.rivals` knows, or "module:contestant"."""
    env: str
    """A Gymnasium id, or "module:factory"."""
    num_envs: int
    num_workers: int | None = None
    """None is the contestant's own default."""
    duration_s: float = 0.5
    """0 measures the start only."""
    warmup_s: float = 0.1
    pause_s: float = 0.0
    """Above 0: also what workers do in pauses of this length."""

    @property
    def place(self) -> Place:
        return Place(self.env, self.num_envs)

    @property
    def label(self) -> str:
        """The contestant, and its number of workers where that was chosen."""
        return (
            self.contestant
            if self.num_workers is None
            else f"{self.contestant} ×{self.num_workers}"
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured. None: could not be, or was not asked for."""

    steps_per_s: float | None = None
    """Transitions: a call that only resets an environment is none of it."""
    cpu_s_per_million: float | None = None
    """Processor seconds of caller and workers for a million of them."""
    p50_s: float | None = None
    p99_s: float | None = None
    """Latency of one call."""
    start_s: float | None = None
    """From the start of the interpreter to the end of the first reset ..."""
    start_cpu_s: float | None = None
    """... and the processor time that went into it, workers included."""
    num_processes: int | None = None
    """Below the caller."""
    worker_mb: float | None = None
    """Memory of all processes below the caller, divided by the number of workers."""
    total_mb: float | None = None
    """With the caller."""
    descriptors: int | None = None
    """That the caller has open for it."""
    gpu_processes: int | None = None
    """That have a GPU open, caller included; None for none ..."""
    gpu_mb: float | None = None
    """... and its memory that they hold, as nvidia-smi tells."""
    pause_cpu: float | None = None
    """Cores that each worker burns while nobody steps."""
    wake_s: float | None = None
    """The first call after a pause."""
    others_cpu: float | None = None
    """Cores that other programs kept busy meanwhile: what disturbed the measurement."""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value not in (None, "")}
