"""Simulated against true parallelism: what was measured of each, and when to use which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shoal.engine.probe import Probe, Unprobed
from shoal.measure.summary import Row, cores_used
from shoal.measure.table import NONE, count, seconds


class Aspect(NamedTuple):
    """One line of the comparison."""

    name: str
    simulated: str
    true: str


def compare(serial: Row, process: Row, found: Probe | Unprobed) -> Sequence[Aspect]:
    """Both with the same number of environments."""
    both = (serial, process)
    return (
        Aspect("speed", *(f"{count(row.steps_per_s)} steps/s" for row in both)),
        Aspect("CPU", *map(_cpu, both)),
        Aspect("memory", *map(_memory, both)),
        Aspect("start-up", *(seconds(row.middle.start_s) for row in both)),
        Aspect("GPU", *map(_gpu, both)),
        Aspect("rendering", *_rendering(found)),
        Aspect("a crash", "ends your program", "stays in its worker"),
        Aspect(
            "use it for",
            "cheap steps, one core, a debugger, a window",
            "steps from some 100 µs, waiting, crashes",
        ),
    )


def _cpu(row: Row) -> str:
    used = cores_used(row)
    return NONE if used is None else f"{used:.1f} cores at work"


def _memory(row: Row) -> str:
    return NONE if row.middle.total_mb is None else f"{row.middle.total_mb:,.0f} MB"


def _gpu(row: Row) -> str:
    processes, held_mb = row.middle.gpu_processes, row.middle.gpu_mb
    if not processes:
        return "none"
    said = f"{processes:.0f} process{'' if processes == 1 else 'es'}"
    return said if held_mb is None else f"{said}, {held_mb:,.0f} MB"


def _rendering(found: Probe | Unprobed) -> tuple[str, str]:
    """Who has a screen: this process. Pictures come from any."""
    if isinstance(found, Unprobed):
        return "not known", "not known"
    modes = [mode for mode in found.render_modes.split(", ") if mode]
    if not modes:
        return "the environment has none", "the environment has none"
    pictures = [mode for mode in modes if mode != "human"]
    apart = ", ".join(pictures) or "no pictures"
    return ", ".join(modes), f"{apart}; a window for each env" if "human" in modes else apart
