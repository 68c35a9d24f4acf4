"""What a GPU does meanwhile: the kernels of one update, and what nvidia-smi samples.

How long kernels take is not changed by profiling them, but all between them is: so they are summed
up over one update that is not measured otherwise, and compared with how long the others took.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
from typing import Any

import torch

from benchmarks.training.task import Numbers

_SMI = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200")
_COPIES = ("memcpy", "memset")


class Gpu:
    """A GPU that is watched; on any other device nothing is found."""

    def __init__(self, device: str) -> None:
        self._is_there = device == "cuda"
        self._profile: Any = None
        self._smi: subprocess.Popen[str] | None = None
        self._samples: list[float] = []
        self._sums_s: dict[str, float] = {}

    def watch(self) -> None:
        """Have nvidia-smi sample from here on."""
        if self._is_there and shutil.which(_SMI[0]):
            self._smi = subprocess.Popen(_SMI, stdout=subprocess.PIPE, text=True)

    def begin(self) -> bool:
        """The measured updates are over; whether one more is wanted."""
        if self._smi is not None:
            self._smi.terminate()
            self._samples = percentages(self._smi.communicate()[0])
        if self._is_there:
            self._profile = torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA]
            )
            self._profile.start()
        return self._is_there

    def end(self) -> None:
        """That update is over, too."""
        torch.cuda.synchronize()
        self._profile.stop()
        self._sums_s = sums_s(self._profile.events())

    def numbers(self, update_s: float | None) -> Numbers:
        shares = {name: seconds / (update_s or 1.0) for name, seconds in self._sums_s.items()}
        busy = {"busy": statistics.mean(self._samples) / 100.0} if self._samples else {}
        return shares | busy


def percentages(said: str) -> list[float]:
    """What nvidia-smi has said; "[N/A]" is nothing."""
    return [float(word) for word in said.split() if word.isdigit()]


def sums_s(events: Any) -> dict[str, float]:
    """Seconds in kernels and in copies; nothing where the profiler has seen none."""
    sums = {"kernels": 0.0, "copies": 0.0}
    for event in events:
        taken_s = event.self_device_time_total * 1e-6
        sums["copies" if event.name.lower().startswith(_COPIES) else "kernels"] += taken_s
    return sums if any(sums.values()) else {}
