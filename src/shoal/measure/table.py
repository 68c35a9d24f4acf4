"""Tables of a contest, as plain text for terminals and as Markdown for reports: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shoal.measure.job import BOUND
from shoal.measure.rivals import family_of
from shoal.measure.summary import Row, best, paired_ratio

HEADERS = (
    "contestant",
    "steps/s",
    "lowest to highest",
    "to best rival",
    "of the bound",
    "CPU s per million",
    "p50",
    "p99",
)
FOOTPRINT_HEADERS = (
    "contestant",
    "start",
    "processes",
    "MB per worker",
    "MB in all",
    "descriptors",
)
NONE = "–"


def body(rows: Sequence[Row]) -> list[list[str]]:
    """The cells of one place, fastest first; who was skipped is left to `skips`."""
    rival = best(rows, is_rival)
    measured = [row for row in rows if row.rates]
    return [_cells(row, rival) for row in sorted(measured, key=_slowness)]


def footprints(rows: Sequence[Row]) -> list[list[str]]:
    """What each of these takes besides time: cells, where anything was measured."""
    return [
        [
            row.job.label,
            seconds(row.middle.start_s),
            count(row.middle.num_processes),
            ratio(row.middle.worker_mb),
            ratio(row.middle.total_mb),
            count(row.middle.descriptors),
        ]
        for row in rows
        if row.rates and row.job.contestant != BOUND
    ]


def skips(rows: Iterable[Row]) -> list[str]:
    """A line for each who was not measured, with the reason."""
    return [f"{row.job.label}: {row.skipped}" for row in rows if row.skipped]


def is_rival(row: Row) -> bool:
    """Whether it ran the same Python environments, and is not Shoal."""
    return row.job.contestant != BOUND and family_of(row.job.contestant) == "rival"


def as_text(
    headers: Sequence[str],
    cells: Sequence[Sequence[str]],
    align: Callable[[str, int], str] = str.rjust,
) -> str:
    """Columns of their own width, the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    lines = [headers, *cells]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(align, line[1:], widths[1:])]).rstrip()
        for line in lines
    )


def as_markdown(headers: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---", *["--:"] * (len(headers) - 1)], *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def count(value: float | None) -> str:
    """Whole thousands grouped; as many digits as mean anything."""
    return NONE if value is None else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}"


def times(value: float | None) -> str:
    return NONE if value is None else f"{value:.2f}×"


def seconds(value: float | None) -> str:
    """In the unit that suits it."""
    if value is None:
        return NONE
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if value * factor < 1000:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.2f} s"


def _cells(row: Row, rival: Row | None) -> list[str]:
    middle, spread = row.middle, row.spread
    to_rival = paired_ratio(row, rival) if rival is not None else None
    note = f" ({middle.note})" if middle.note else ""
    return [
        row.job.label + note,
        count(middle.steps_per_s),
        NONE if spread is None else f"{count(spread.low)} to {count(spread.high)}",
        times(to_rival.median if to_rival else None),
        ratio(row.fraction),
        ratio(middle.cpu_s_per_million),
        seconds(middle.p50_s),
        seconds(middle.p99_s),
    ]


def _slowness(row: Row) -> float:
    return -row.steps_per_s
