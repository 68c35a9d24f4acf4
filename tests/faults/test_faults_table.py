"""Is the table of measured figures kept as it should be?"""

from __future__ import annotations

import re

import pytest

from faults.conftest import PAGE
from faults.faults_table import BEGIN, END, FAULTS, Figure, rewrite

EMPTY = f"above\n\n{BEGIN}\n{END}\n\nbelow\n"


def row(page: str, fault_id: str) -> str:
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {fault_id} |"))
    return line


def test_a_figure_stands_in_the_row_of_its_fault() -> None:
    page = rewrite(EMPTY, [Figure("F8", "forkserver", "descriptors +0")], "2 cores")
    assert row(page, "F8").endswith("| forkserver: descriptors +0 |")
    assert "on 2 cores" in page
    assert row(page, "F9").endswith("| not measured yet |")


def test_every_fault_has_a_row_and_the_rest_of_the_page_stays() -> None:
    page = rewrite(EMPTY, [], "2 cores")
    assert re.findall(r"^\| (F\w+) \|", page, re.MULTILINE) == list(FAULTS)
    assert page.startswith("above\n\n")
    assert page.endswith("\n\nbelow\n")


def test_what_was_not_measured_again_stays() -> None:
    old = [Figure("F6", "fork", "1 s"), Figure("F6", "spawn", "2 s"), Figure("F8", "fork", "3 s")]
    page = rewrite(rewrite(EMPTY, old, "2 cores"), [Figure("F6", "spawn", "4 s")], "8 cores")
    assert row(page, "F6").endswith("| fork: 1 s<br>spawn: 4 s |")
    assert row(page, "F8").endswith("| fork: 3 s |")


def test_equal_figures_are_counted_and_different_ones_all_told() -> None:
    figures = [Figure("F2", "cause", "named")] * 3 + [Figure("F2", "cause", "unnamed")]
    assert row(rewrite(EMPTY, figures, ""), "F2").endswith("| cause: named (3 cases); unnamed |")


def test_rewriting_with_nothing_new_changes_nothing() -> None:
    page = rewrite(EMPTY, [Figure("F2", "cause", "named: all")] * 2, "2 cores")
    assert rewrite(page, [], "2 cores") == page


def test_a_page_without_the_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="has no table"):
        rewrite("a page", [], "2 cores")


def test_the_table_in_the_documentation_is_one_that_would_be_written() -> None:
    text = PAGE.read_text()
    machine = re.search(r"^Measured by `.*` on (.*)\.$", text, re.MULTILINE)
    assert machine
    assert rewrite(text, [], machine[1]) == text
