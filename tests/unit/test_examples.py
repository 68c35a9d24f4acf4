"""Every example runs, and every code and output block of the documentation comes from one."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = {path.name: path for path in sorted((ROOT / "examples").glob("*.py"))}
PAGES = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "docs").rglob("*.md"))}
README = ROOT / "README.md"

CLOSING = {
    "agilerl_drop_in.py": "shoal.vector.agilerl.AsyncPettingZooVecEnv",
    "batched.py": "8 environments, four to a simulator",
    "bottleneck.py": "3 pools asked",
    "branching.py": "the pole stood for 40 steps",
    "calls.py": "four environments, one that failed, none that was harmed",
    "capsules.py": "exit code 1",
    "checking.py": "VectorEnv(CartPole-v1, num_envs=3) passes: 0 errors, 0 warnings, 0 notes",
    "drop_in.py": "shoal.vector.gym.AsyncVectorEnv",
    "episode_ends.py": "an overwritten buffer does not reach final_obs",
    "factories.py": "four kinds, one list, two wrappers",
    "failures.py": "raised, died, hung: three errors, no hang",
    "first_ready.py": "the quickest environment went ahead: True",
    "first_steps.py": "# episodes in 6400 steps, # workers",
    "gameboy.py": "the pearl after # steps",
    "gymnasium_faults.py": "21 faults of Gymnasium 1.4.0",
    "infos.py": "keys: _inner, _note, _place, _speed, inner, note, place, speed",
    "observations.py": "one dict, two rows and a tuple",
    "output.py": "heard",
    "ownership.py": "views are valid for one further step",
    "recovery.py": "the whole run as undisturbed: True",
    "resizing.py": "2, 6 and 3 environments, and the first two kept their episodes",
    "sb3_drop_in.py": "576 steps on shoal.vector.sb3.SubprocVecEnv",
    "seeds.py": "5 ways to run, one trajectory",
    "shared_data.py": "15 MiB, shared by 8 environments",
    "slow.py": "the slow one has moved out",
    "tasks.py": "tasks of the last episodes: [7 1 8]",
    "team.py": "# games of connect four",
    "team_rows.py": "768 steps of 12 rows",
    "team_training.py": "policies: ['first', 'others']",
    "teams_elsewhere.py": "a team, rows, two kinds of agents, and two hunters as one",
    "training.py": (
        "stopped by a mean return of 22 over the latest 100 episodes; another went on to 8192 steps"
    ),
    "troubles.py": "explained",
    "vector_wrappers.py": "68 episodes, the engine counts the same",
}
"""The last line that each example prints; # stands for any number."""

_MARK = re.compile(r"^\s*# --8<-- \[(start|end):(\w+)\]$")
_BLOCK = re.compile(r"^( *)```+ *(\w+)[^\n]*\n(.*?)^\1```+$", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r'^ *--8<-- "([\w.]+)(?::(\w+))?"$')


@functools.cache
def output_of(name: str) -> str:
    """What an example prints, run as a user would run it; it must succeed."""
    command = [sys.executable, "-W", "error", str(EXAMPLES[name])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def sections_of(name: str) -> dict[str, str]:
    """The marked sections of an example, without marks."""
    found: dict[str, list[str]] = {}
    running: set[str] = set()
    for line in EXAMPLES[name].read_text().splitlines():
        if mark := _MARK.match(line):
            (running.add if mark[1] == "start" else running.remove)(mark[2])
            found.setdefault(mark[2], [])
        else:
            for section in running:
                found[section].append(line)
    assert not running, f"{name}: section {running} has no end"
    return {section: "\n".join(lines).strip("\n") for section, lines in found.items()}


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of this language."""
    return [content.strip("\n") for _, name, content in _BLOCK.findall(text) if name == language]


def without_chance(text: str) -> str:
    """Without what differs from run to run: numbers of processes, and how long something took."""
    return re.sub(r"\bpid \d+|\b\d+\.\d+ s\b", "#", text)


def test_every_example_has_its_closing_line_here() -> None:
    assert CLOSING.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_runs_and_says_what_it_should(name: str) -> None:
    pattern = re.escape(CLOSING[name]).replace(r"\#", r"\d+")
    assert re.fullmatch(pattern, output_of(name).splitlines()[-1])


@pytest.mark.parametrize("page", PAGES)
def test_python_in_pages_is_included_from_examples(page: str) -> None:
    for block in blocks(PAGES[page].read_text(), "python"):
        for line in block.splitlines():
            include = _INCLUDE.match(line)
            assert include, f"{page}: this code stands in no example: {line}"
            assert include[2] is None or include[2] in sections_of(include[1])


def test_python_in_readme_is_a_section_of_an_example() -> None:
    known = {section for name in EXAMPLES for section in sections_of(name).values()}
    found = blocks(README.read_text(), "python")
    assert found
    assert set(found) <= known


@pytest.mark.parametrize("page", [*PAGES, "README.md"])
def test_output_in_pages_is_what_an_example_prints(page: str) -> None:
    text = (ROOT / page).read_text()
    named_first = sorted(EXAMPLES, key=lambda name: name not in text)  # the others take minutes
    for block in blocks(text, "text"):
        shown = without_chance(block)
        assert any(shown in without_chance(output_of(name)) for name in named_first), (
            f"{page}: no example prints\n{block}"
        )


def test_the_table_of_gymnasium_faults_is_what_the_example_prints() -> None:
    text = (ROOT / "docs" / "coming-from-gymnasium.md").read_text()
    rows = [line for line in output_of("gymnasium_faults.py").splitlines() if line.startswith("|")]
    assert rows
    assert [row for row in rows if row not in text.splitlines()] == []
