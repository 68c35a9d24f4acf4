"""`shoal advise ENV`: which backend, how many environments and workers, measured here."""

from __future__ import annotations

import argparse
import json
import sys

from shoal.engine.probe import Probe
from shoal.errors import ConfigError
from shoal.measure.advise import advise
from shoal.measure.contest import Outcome
from shoal.measure.job import BOUND
from shoal.measure.plot import bars, check_plot, draw
from shoal.measure.summary import Row, cores_used
from shoal.measure.table import NONE, as_text, count, ratio, seconds
from shoal.measure.verdict import Advice, backend_of

SUMMARY = "measure which backend, how many environments and workers suit an environment"
_COMPARED = ("", "simulated (serial)", "true (process)")
_HEADERS = ("backend", "workers", "envs", "steps/s", "of the bound", "cores", "MB", "start")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("env", metavar="ENV", help="a Gymnasium id, or module:factory")
    add("--n-envs", nargs="+", type=int, default=[], metavar="N", help="environments to try")
    add("--seconds", type=float, default=0.5, help="of each measurement (default 0.5)")
    add("--plot", metavar="FILE", help="draw steps/s against environments into FILE.png")
    add("--json", action="store_true", help="print all that was measured as JSON")


def run(given: argparse.Namespace) -> int:
    if given.seconds <= 0 or any(one < 1 for one in given.n_envs):
        raise ConfigError("--seconds must be above zero, and --n-envs at least 1.")
    if given.plot:
        check_plot(given.plot)
    counts = tuple(dict.fromkeys(given.n_envs))
    advice = advise(given.env, counts, duration_s=given.seconds, progress=_tell)
    _tell_no_more()
    if given.plot:
        draw(given.env, advice.rows, given.plot)
    print(json.dumps(advice.to_dict(), indent=2) if given.json else _as_text(advice))
    return 0


def _tell(number: int, total: int, outcome: Outcome) -> None:
    """One line that is written over, where somebody watches."""
    if sys.stderr.isatty():
        text = f"[{number}/{total}] {outcome.job.label}, {outcome.job.num_envs} environments"
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def _tell_no_more() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _as_text(advice: Advice) -> str:
    rows = sorted(advice.rows, key=lambda row: (row.job.num_envs, -row.steps_per_s))
    table = as_text(_HEADERS, [_cells(row) for row in rows if row.rates])
    skipped = [f"{row.job.label}: {row.skipped}" for row in rows if row.skipped]
    parts = [_headline(advice), table, *skipped, bars(advice.rows)]
    if advice.comparison:
        parts.append(as_text(_COMPARED, advice.comparison, str.ljust))
    parts.append("\n".join(advice.sentences))
    return "\n\n".join([*parts, f"recommended:\n    {advice.code}"])


def _headline(advice: Advice) -> str:
    cores = f"{advice.cores} core{'' if advice.cores == 1 else 's'}"
    found = advice.probe
    if not isinstance(found, Probe):
        return f"{advice.env} on {cores}: {found.why}"
    lock = "" if found.lock_free is None else f", lock released for {found.lock_free:.0%} of a step"
    return (
        f"{advice.env} on {cores}: step {seconds(found.step_s)} (CPU {seconds(found.cpu_s)}, "
        f"spread {found.spread:.2f}), reset {seconds(found.reset_s)}, "
        f"observation {count(found.observation_bytes)} bytes, {found.memory_mb:.0f} MB{lock}"
    )


def _cells(row: Row) -> list[str]:
    job, middle = row.job, row.middle
    is_first_ready = job.contestant == "shoal first-ready"
    name = BOUND if job.contestant == BOUND else backend_of(row)
    return [
        f"{name}, batch_size={max(1, job.num_envs // 2)}" if is_first_ready else name,
        NONE if job.num_workers is None else str(job.num_workers),
        str(job.num_envs),
        count(middle.steps_per_s),
        ratio(row.fraction),
        NONE if (used := cores_used(row)) is None else f"{used:.1f}",
        count(middle.total_mb),
        seconds(middle.start_s),
    ]
