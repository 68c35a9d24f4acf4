"""The targets, one by one: what was asked, what was measured, and by how much it was missed.

`python -m benchmarks.targets` measures what the table needs (forty minutes; `--full`: with everyone
at every number of environments, hours) and prints it; `--from FILE...` reads records instead.
It reports, and never asserts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from benchmarks import plan
from benchmarks.needs import (
    FIRST_READY,
    FIRST_READY_RIVALS,
    GROWING,
    GROWTH,
    INFOS,
    LOCK_STEP,
    PIPE_RIVALS,
    RIVALS,
    SERIAL_RIVALS,
    SMALL_CORES,
    STARTING,
    STARTS,
    TEAM,
    groups,
    rivals_at,
)
from benchmarks.plan import name_of
from benchmarks.report import NOTES, machine_lines, tables
from benchmarks.run import measure, without_folder
from benchmarks.workloads import WORKLOADS
from shoal.errors import ConfigError
from shoal.measure import BOUND, Figures, Job, Record, Row, best, claim, paired_ratio, summarise
from shoal.measure.job import Place
from shoal.measure.summary import at, disturbance
from shoal.measure.table import as_markdown, is_rival

STARTS_ONLY = "starts"
"""What is measured of no workload."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One measured value of a target, and where."""

    where: str
    value: float
    absent: tuple[str, ...] = ()
    """Rivals that were to be met there and have no figure."""


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked for, on 2 cores and on 16."""

    says: str
    small: float
    large: float
    read: Read
    at_most: bool = False

    def asked(self, cores: int) -> float:
        return self.small if cores <= SMALL_CORES else self.large


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """All rows of a run, and where to look for what."""

    rows: Sequence[Row]
    cores: int

    def places(self, *names: str, least: int = 0) -> Iterator[tuple[str, list[Row]]]:
        """Where the bound was measured too, by its name: the rows of each."""
        places = dict.fromkeys(row.job.place for row in self.rows if row.job.contestant == BOUND)
        for place in places:
            name = name_of(place.env)
            if (not names or name in names) and place.num_envs >= least:
                yield f"{name}, {place.num_envs} envs", at(self.rows, place)

    def one(self, contestant: str, workload: str, num_envs: int) -> Row | None:
        """With its own number of workers, so that rows of one group are compared."""
        rows = at(self.rows, Place(WORKLOADS[workload].env, num_envs))
        return _fastest([row for row in rows if row.job.num_workers is None], [contestant])


Read = Callable[[Measured], Iterable[Reading]]


def _fastest(rows: Sequence[Row], contestants: Sequence[str]) -> Row | None:
    return best(rows, lambda row: row.job.contestant in contestants)


def _absent(rows: Sequence[Row], rivals: Iterable[str]) -> tuple[str, ...]:
    """Those of these rivals who have no figure at this place, for whatever reason."""
    measured = {row.job.contestant for row in rows if row.middle != Figures()}
    return tuple(name for name in rivals if name not in measured)


def _absent_of_all(rows: Sequence[Row]) -> tuple[str, ...]:
    place = rows[0].job.place
    return _absent(rows, rivals_at(name_of(place.env), place.num_envs))


def _against(
    where: str, ours: Row | None, theirs: Row | None, absent: tuple[str, ...] = ()
) -> Iterator[Reading]:
    if ours is None or theirs is None:
        return
    ratio = paired_ratio(ours, theirs)
    if ratio is not None:
        yield Reading(f"{where}: {ours.job.label} to {theirs.job.label}", ratio.median, absent)


def _auto(*names: str, least: int = 0, ours: str = "shoal auto") -> Read:
    """The choice that Shoal makes, to the best that others offer."""

    def read(measured: Measured) -> Iterator[Reading]:
        for where, rows in measured.places(*names, least=least):
            pair = _fastest(rows, [ours]), best(rows, is_rival)
            yield from _against(where, *pair, _absent_of_all(rows))

    return read


def _backend(ours: str, theirs: Sequence[str], *names: str, least: int = 0) -> Read:
    def read(measured: Measured) -> Iterator[Reading]:
        for where, rows in measured.places(*names, least=least):
            pair = _fastest(rows, [ours]), _fastest(rows, theirs)
            yield from _against(where, *pair, _absent(rows, theirs))

    return read


def _each(ours: str, rivals: Sequence[str], *names: str, least: int = 0) -> Read:
    """To one rival after another."""

    def read(measured: Measured) -> Iterator[Reading]:
        for where, rows in measured.places(*names, least=least):
            for rival in rivals:
                pair = _fastest(rows, [ours]), _fastest(rows, [rival])
                yield from _against(where, *pair, _absent(rows, rivals))

    return read


def _pufferlib(measured: Measured) -> Iterator[Reading]:
    """With the same number of workers: as many as cores, and one fewer."""
    for where, rows in measured.places("cartpole", least=32):
        for num_workers, told in ((measured.cores, None), (measured.cores - 1,) * 2):
            ours = [row for row in rows if row.job.num_workers == told]
            theirs = [row for row in rows if row.job.num_workers == num_workers]
            pair = _fastest(ours, ["shoal process"]), _fastest(theirs, ["pufferlib mp"])
            yield from _against(where, *pair)


def _fraction(contestants: Sequence[str], *names: str, per_worker: int = 4) -> Read:
    """Of the bound, by the best of these, with at least so many environments for each worker."""

    def read(measured: Measured) -> Iterator[Reading]:
        for where, rows in measured.places(*names, least=per_worker * measured.cores):
            row = _fastest(rows, contestants)
            if row is not None and row.fraction is not None:
                yield Reading(f"{where}: {row.job.label}", row.fraction)

    return read


def _infos(measured: Measured) -> Iterator[Reading]:
    for name, with_infos in INFOS:
        pair = [measured.one("shoal process", one, 32) for one in (name, with_infos)]
        yield from _against(f"{name}, 32 envs", *pair)


def _growth(measured: Measured) -> Iterator[Reading]:
    """Steps/s at few environments to those at many is cost at many to cost at few."""
    for contestant in GROWING:
        few, many = (measured.one(contestant, "cartpole", num_envs) for num_envs in GROWTH)
        yield from _against(f"cartpole, {GROWTH[0]} envs and {GROWTH[1]}", few, many)


def _pauses(measured: Measured) -> Iterator[Reading]:
    for row in measured.rows:
        if row.middle.pause_cpu is not None and row.job.contestant.startswith("shoal"):
            yield Reading(f"{row.job.num_envs} envs: {row.job.label}", row.middle.pause_cpu)


def _starts(measured: Measured) -> Iterator[Reading]:
    for row in _started(measured, 64, STARTING):
        yield Reading(f"{row.job.num_envs} envs: {row.job.label}", row.middle.start_cpu_s or 0.0)


def _starts_against(measured: Measured) -> Iterator[Reading]:
    """To those of rivals that do not fork the caller either."""
    started = {count: _started(measured, count, names) for count, names in STARTS.items()}
    absent = tuple(
        f"{name} with {num_envs}"
        for num_envs, names in STARTS.items()
        for name in _absent(started[num_envs], names)
    )
    for num_envs, spawns in started.items():
        for ours in _started(measured, num_envs, STARTING):
            for theirs in spawns:
                where = f"{num_envs} envs: {ours.job.label} to {theirs.job.label}"
                ratio = (ours.middle.start_cpu_s or 0.0) / (theirs.middle.start_cpu_s or 1.0)
                yield Reading(where, ratio, absent)


def _started(measured: Measured, num_envs: int, contestants: Sequence[str]) -> list[Row]:
    return [
        row
        for row in measured.rows
        if not row.job.duration_s
        and row.job.num_envs == num_envs
        and row.middle.start_cpu_s
        and row.job.contestant in contestants
    ]


TARGETS = (
    Target("auto to the best rival, everywhere", 1.0, 1.1, _auto()),
    Target(
        "auto to the best rival, CartPole, 8 envs and more", 1.7, 1.1, _auto("cartpole", least=8)
    ),
    Target(
        "auto to the best rival, pixels, 8 envs and more",
        2.0,
        2.0,
        _auto("pixels-84", "pixels-210", least=8),
    ),
    Target(
        "auto with views, as the best rival returns, to it, pixels, 8 envs and more",
        2.0,
        2.0,
        _auto("pixels-84", "pixels-210", least=8, ours="shoal auto views"),
    ),
    Target(
        "auto to the best rival, empty steps, 8 envs and more", 2.5, 2.0, _auto("empty", least=8)
    ),
    Target(
        "serial to serial rivals, everywhere", 1.0, 1.0, _backend("shoal serial", SERIAL_RIVALS)
    ),
    Target(
        "serial to serial rivals, empty steps",
        1.5,
        1.5,
        _backend("shoal serial", SERIAL_RIVALS, "empty"),
    ),
    Target(
        "process to Gymnasium Async, SB3 Subproc, Tianshou, TorchRL; CartPole, 32 envs and more",
        6.0,
        20.0,
        _each("shoal process", PIPE_RIVALS, "cartpole", least=32),
    ),
    Target(
        "process to PufferLib with the same workers; CartPole, 32 envs and more",
        4.0,
        1.2,
        _pufferlib,
    ),
    Target("of the bound, lock-step, 50 µs", 0.85, 0.80, _fraction(LOCK_STEP, "work-50us")),
    Target("of the bound, lock-step, 500 µs", 0.85, 0.75, _fraction(LOCK_STEP, "work-500us")),
    Target(
        "of the bound, first-ready or two groups, 50 and 500 µs",
        0.93,
        0.93,
        _fraction(FIRST_READY, "work-50us", "work-500us"),
    ),
    Target(
        "of the bound, CartPole, hybrid, 16 envs per worker",
        0.65,
        0.75,
        _fraction(["shoal hybrid"], "cartpole", per_worker=16),
    ),
    Target(
        "first-ready to lock-step, exponential 1 ms steps",
        1.3,
        1.6,
        _backend("shoal first-ready", ["shoal process"], "uneven"),
    ),
    Target(
        "auto to the best rival, environments that wait, 32 envs",
        1.2,
        1.2,
        _auto("waiting", "socket", least=32),
    ),
    Target(
        "auto in first-ready batches to the best rival, environments that wait, 32 envs",
        1.2,
        1.2,
        _auto("waiting", "socket", least=32, ours="shoal auto first-ready"),
    ),
    Target(
        "auto in first-ready batches to the best rival in such, the same environments",
        1.2,
        1.2,
        _backend("shoal auto first-ready", FIRST_READY_RIVALS, "waiting", "socket", least=32),
    ),
    Target("of the bound, a team of three", 0.85, 0.85, _fraction(TEAM, "spread", per_worker=0)),
    Target(
        "auto to the best rival, a team of three", 1.0, 1.0, _auto("spread", ours="shoal team auto")
    ),
    Target("without numeric infos to with them", 1.1, 1.1, _infos, at_most=True),
    Target("cores burnt by each worker while nobody steps", 0.01, 0.01, _pauses, at_most=True),
    Target("CPU seconds to the first reset of 64 envs", 2.0, 2.0, _starts, at_most=True),
    Target(
        "CPU of the start to that of rivals that do not fork the caller",
        1.0,
        1.0,
        _starts_against,
        at_most=True,
    ),
    Target("cost per env at 1024 envs to that at 64", 1.2, 1.2, _growth, at_most=True),
)


# --- the table ----------------------------------------------------------------------------------


def markdown(records: Sequence[Record]) -> str:
    """Ratios are of one record each: rounds of another one were at another time."""
    cores = records[0].machine.cores
    measured = [Measured(summarise(record.outcomes), cores) for record in records]
    judged = [(target, [*chain.from_iterable(map(target.read, measured))]) for target in TARGETS]
    cells = [_cells(target, readings, cores) for target, readings in judged]
    headers = ("target", "asked", "worst measured", "", "where")
    details = [
        f"- **{target.says}**: " + "; ".join(f"{one.where} {one.value:.3g}" for one in readings)
        for target, readings in judged
        if len(readings) > 1
    ]
    parts = [
        f"# Targets, {records[0].begun}",
        *dict.fromkeys(machine_lines(record.machine) for record in records),
        *(disturbance(record.outcomes) for record in records),
        "Regenerate: " + ", ".join(f"`{record.asked}`" for record in records),
        as_markdown(headers, cells),
        NOTES,
        "## Every reading",
        "\n".join(details),
        *(part for record in records for part in tables(record)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _cells(target: Target, readings: Sequence[Reading], cores: int) -> list[str]:
    asked = target.asked(cores)
    says = f"{'≤' if target.at_most else '≥'} {asked:g}"
    if not readings:
        return [target.says, says, "–", "not measured", ""]
    worst = (max if target.at_most else min)(readings, key=lambda one: one.value)
    absent = dict.fromkeys(name for one in readings for name in one.absent)
    said = verdict(target, worst, asked) + (f" (not measured: {', '.join(absent)})" * bool(absent))
    return [target.says, says, f"{worst.value:.3g}", said, worst.where]


def verdict(target: Target, worst: Reading, asked: float) -> str:
    """Met, or by how much not."""
    is_met = worst.value <= asked if target.at_most else worst.value >= asked
    return "met" if is_met else f"not met, off by {abs(worst.value - asked) / asked:.0%}"


# --- the command --------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    asked = list(sys.argv[1:] if arguments is None else arguments)
    given = _parse(asked)
    if given.files:
        print(markdown(read(given.files)), end="")
        return 0
    record = plan.begin(["python", "-m", "benchmarks.targets", *without_folder(asked)], given.name)
    file = claim(given.out, record.stem, record.to_json())
    planned = groups(given.full, given.seconds, given.rivals)
    planned = (group for group in planned if _subject(group) in given.only)
    measure(record, planned, given.repeats, keep=lambda: write(record, file))
    print("\n" + markdown([as_kept(record)]))
    return 0


def _subject(group: Sequence[Job]) -> str:
    """What jobs that are measured together are about."""
    return name_of(group[0].env) if group[0].duration_s else STARTS_ONLY


def read(files: Sequence[Path]) -> list[Record]:
    """Records of one kind of machine: what is asked depends on its cores."""
    records = [Record.from_json(file.read_text()) for file in files]
    if len({record.machine.cores for record in records}) > 1:
        found = ", ".join(
            f"{file} of {record.machine.cores}" for file, record in zip(files, records, strict=True)
        )
        raise ConfigError(
            "the records are of different machines, which targets are not read from together. "
            f"--from: expected one number of cores, got {found}. "
            "Give those of one machine at a time."
        )
    return records


def write(record: Record, file: Path) -> None:
    """JSON and Markdown, next to each other."""
    file.write_text(record.to_json())
    file.with_suffix(".md").write_text(markdown([as_kept(record)]))


def as_kept(record: Record) -> Record:
    """As it is read from its file, where numbers are rounded: what is said is said of that."""
    return Record.from_json(record.to_json())


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.targets", description=__doc__)
    add = parser.add_argument
    said = (
        "with everyone, at every number of environments; where 12 GB of memory are free also the "
        "start of 64 of Stable-Baselines3's workers as they come, minutes each time"
    )
    add("--full", action="store_true", help=said)
    add("--from", dest="files", nargs="+", type=Path, metavar="FILE", help="records to read")
    said = "who `auto` and `serial` are compared with everywhere (default all of the quick ones)"
    add("--rivals", nargs="+", default=RIVALS, choices=RIVALS, metavar="NAME", help=said)
    subjects = list(dict.fromkeys(map(_subject, groups(False, 1.0))))
    said = f"what to measure, where a machine is lent for a while only: {', '.join(subjects)}"
    add("--only", nargs="+", default=subjects, choices=subjects, metavar="NAME", help=said)
    add("--repeats", type=int, default=3, help="rounds (default 3)")
    add("--seconds", type=float, default=0.4, help="of each measurement (default 0.4)")
    said = "what its files' names begin with (default targets)"
    add("--name", type=plan.as_name, default="targets", help=said)
    add("--out", type=Path, default=plan.RESULTS, help="folder for JSON and table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
