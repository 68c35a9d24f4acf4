"""How long the fault suite runs, and what becomes of the figures it measures.

With `SHOAL_FAULTS=full`, as `make test-faults` sets it, tests run at their full counts, and when
all have passed, what they measured is written into the table of `docs/reliability.md`. Otherwise
they are short and nothing is written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from faults.faults_table import FAULTS, Figure, describe_machine, rewrite

FULL = os.environ.get("SHOAL_FAULTS") == "full"
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"

_FIGURES = pytest.StashKey[list[Figure]]()


class Scale(Protocol):
    """Chooses between the count of a short run and that of a full one."""

    def __call__(self, *, short: int, full: int) -> int: ...


Record = Callable[[str, str, str], None]


@pytest.fixture(autouse=True)
def _nothing_is_left_handled() -> Iterator[None]:
    """What an interruption leaves behind would be the context of every later test's exceptions."""
    yield
    assert sys.exc_info() == (None, None, None)


@pytest.fixture
def scale() -> Scale:
    return lambda *, short, full: full if FULL else short


@pytest.fixture
def figure(pytestconfig: pytest.Config) -> Record:
    """`figure(fault_id, what, measured)` keeps a measured result for the report.

    Tests of the same fault tell their figures apart by `what`; equal ones are counted.
    """
    figures = pytestconfig.stash[_FIGURES]

    def record(fault_id: str, what: str, measured: str) -> None:
        assert fault_id in FAULTS
        # What the table could not be read back with.
        assert ": " not in what
        assert not any(mark in what + measured for mark in ("|", "<br>", "\n"))
        figures.append(Figure(fault_id, what, measured))

    return record


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FIGURES] = []


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    figures = session.config.stash[_FIGURES]
    if FULL and figures and exitstatus == pytest.ExitCode.OK and not _is_worker(session.config):
        PAGE.write_text(rewrite(PAGE.read_text(), figures, describe_machine()))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    figures = config.stash[_FIGURES]
    if not FULL or not figures:
        return
    terminalreporter.section("figures")
    for fault_id, what, measured in dict.fromkeys(figures):
        terminalreporter.line(f"{fault_id:<4} {what}: {measured}")
    if exitstatus != pytest.ExitCode.OK:
        terminalreporter.line(f"not written to {PAGE.name}, because not all tests passed")


def _is_worker(config: pytest.Config) -> bool:
    """Whether this is one of several processes that share the tests (xdist)."""
    return hasattr(config, "workerinput")
