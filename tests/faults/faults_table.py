"""The faults that this folder tests, their targets, and the table of what was measured.

The table stands between two markers in a page of the documentation. Rewriting it keeps what a run
did not measure again.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from typing import NamedTuple

from shoal.engine.machine import usable_cores

BEGIN, END = "<!-- faults:begin -->", "<!-- faults:end -->"
COMMAND = "make test-faults"
_UNMEASURED = "not measured yet"
_BREAK = "<br>"


class Fault(NamedTuple):
    """What goes wrong, and what then has to be true."""

    fault: str
    target: str


class Figure(NamedTuple):
    """One measured result; a fault may have several, told apart by `what`."""

    fault_id: str
    what: str
    measured: str


FAULTS = {
    "F1": Fault(
        "SIGKILL a random worker, 100 times over a run",
        "100 of 100 recovered; noticed within 50 ms of the wait; back in p50 ≤ 1 s, p99 ≤ 3 s; "
        "all other environments bit-identical to a fault-free run; no transition lost, doubled "
        "or misattributed",
    ),
    "F1b": Fault(
        'the same with `on_failure="replay"`: CartPole, a Dict world, HalfCheetah, pixels',
        "the whole run bit-identical to the fault-free one; recording costs ≤ 2 % of CPU time on "
        "CartPole",
    ),
    "F2": Fault(
        "SIGSEGV, abort, `os._exit(3)`, `sys.exit`, memory limit",
        "cause named: signal or exit code, phase, environments",
    ),
    "F3": Fault(
        "exceptions in constructor, reset, step, render, call, close: unpicklable ones, ones "
        "whose `__init__` needs arguments, `KeyboardInterrupt`, ones with `%` in the text",
        "no hang; remote traceback, environment, seed and action shown",
    ),
    "F4": Fault(
        "endless `step`, sleeping or a C loop holding the interpreter, with `step_timeout_s`",
        "killed and rebuilt within time-out + 300 ms",
    ),
    "F5": Fault(
        "one environment 50 times slower than the rest, `batch_size < num_envs`",
        "environments on other workers keep ≥ 90 % of their throughput; its worker-mates get "
        "away from it at its next episode end",
    ),
    "F6": Fault(
        "the parent SIGKILLed, and the parent's whole group, 20 times each",
        "no process, shared memory, semaphore or temporary file after 2 s "
        "(spawn, forkserver, fork)",
    ),
    "F7": Fault(
        "SIGINT and SIGTERM during reset, step, recv",
        "the process ends within 2 s, no worker tracebacks on the screen, the shell sees 130 and "
        "143; the library installs no signal handlers",
    ),
    "F8": Fault(
        "200 times make, step, close in one process",
        "no growth of descriptors or children; resident memory within 5 MB",
    ),
    "F9": Fault(
        "`ulimit -n 256` with 1,024 environments",
        "works, or `ConfigError` before any worker starts",
    ),
    "F10": Fault("64 MB `/dev/shm`, 256 MB of rows", "no SIGBUS"),
    "F11": Fault(
        "threads running and torch imported and used in the parent, no main guard, lambda "
        "environment, 30 starts each",
        "all start (forkserver and spawn)",
    ),
    "F12": Fault(
        "broadcastable wrong shape, missing or extra Dict key, None, lossy cast, discrete action "
        "out of range; NaN and Inf with `check_finite`",
        "all caught with environment, key, expected, got; what Gymnasium accepts is accepted; "
        "checks cost ≤ 3 % of CPU time on CartPole",
    ),
    "F13": Fault(
        "an environment that always fails", "bounded back-off, then the error; no recursion"
    ),
    "F14": Fault("the step after a time-out or a restart", "never a stale reply, 1,000 tries"),
    "F15": Fault(
        "a leaking environment with `max_worker_rss_mb`", "worker recycled, no episode cut"
    ),
    "F16": Fault(
        "3 minutes of chaos: a random worker killed every second, async and sync",
        "exact transition counts; throughput ≥ 60 % of fault-free on the same machine",
    ),
    "F17": Fault(
        "`resize` 4 → 16 → 2 environments and worker counts 1 → 3 → 2 mid-run",
        "surviving environments keep their episodes bit for bit; they change worker only "
        "between two episodes",
    ),
    "F18": Fault(
        "an environment with child processes (a simulator): killed, hung, closed",
        "its children go with it",
    ),
    "F19": Fault(
        "a rebuilt environment after `set_attr`; after `set_next_reset`",
        "attributes applied again, the pending reset kept",
    ),
    "F20": Fault(
        "a trainer SIGKILLed at 20 random moments",
        "20 of 20 resume from a loadable checkpoint; weights bit-identical to those of an "
        "undisturbed run; no process left",
    ),
}


def rewrite(page: str, figures: Iterable[Figure], machine: str) -> str:
    """The page with these figures in its table; entries that were not measured again stay."""
    before, old_table, after = _split(page)
    cells = _read(old_table)
    for fault_id, fresh in _summarise(figures).items():
        cells[fault_id] = cells.get(fault_id, {}) | fresh
    rows = [_row(fault_id, cells.get(fault_id, {})) for fault_id in FAULTS]
    lines = [
        BEGIN,
        "",
        f"Measured by `{COMMAND}` on {machine}.",
        "",
        "| id | fault | target | measured |",
        "|---|---|---|---|",
        *rows,
        "",
        END,
    ]
    return before + "\n".join(lines) + after


def describe_machine() -> str:
    """Cores, Python and kernel, in words."""
    kernel = platform.release().split("-")[0]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{usable_cores()} cores, {python}, {platform.system()} {kernel}"


def _split(page: str) -> tuple[str, str, str]:
    before, begin, rest = page.partition(BEGIN)
    table, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no table: expected the markers {BEGIN} and {END}")
    return before, table, after


def _read(table: str) -> dict[str, dict[str, str]]:
    """What the table says now: by fault, what was measured and the result."""
    cells: dict[str, dict[str, str]] = {}
    for line in table.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if row[0] in FAULTS and row[-1] != _UNMEASURED:
            parts = (part.partition(": ") for part in row[-1].split(_BREAK))
            cells[row[0]] = {what: result for what, _, result in parts}
    return cells


def _summarise(figures: Iterable[Figure]) -> dict[str, dict[str, str]]:
    """Figures by fault; one that was recorded several times says how often."""
    counts: dict[Figure, int] = {}
    for figure in figures:
        counts[figure] = counts.get(figure, 0) + 1
    cells: dict[str, dict[str, str]] = {}
    for (fault_id, what, measured), count in counts.items():
        results = cells.setdefault(fault_id, {})
        text = measured if count == 1 else f"{measured} ({count} cases)"
        results[what] = f"{results[what]}; {text}" if what in results else text
    return cells


def _row(fault_id: str, results: dict[str, str]) -> str:
    fault, target = FAULTS[fault_id]
    measured = _BREAK.join(f"{what}: {result}" for what, result in results.items())
    return f"| {fault_id} | {fault} | {target} | {measured or _UNMEASURED} |"
