"""Does a person see what is going on, on a terminal and in a log file, and nothing broken after?"""

from __future__ import annotations

import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rich.console

from shoal.monitor import Console, Undertaking

ROOT = Path(__file__).parents[2]
RUN = Undertaking(
    algorithm="PPO",
    env="CartPole-v1",
    num_envs=8,
    backend="process",
    start_method="forkserver",
    total_steps=None,
    total_episodes=1000,
    log_interval=10,
    device="cpu",
    folder=Path("runs/1"),
)
BY_STEPS = replace(RUN, total_steps=100_000, total_episodes=None)
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


class Page(io.StringIO):
    """A stream with a clock that only the test moves."""

    now_s = 0.0

    def screen(self, **kwargs: Any) -> rich.console.Console:
        return rich.console.Console(file=self, width=110, get_time=lambda: self.now_s, **kwargs)

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


@pytest.fixture
def page() -> Page:
    return Page()


def plain(page: Page, run: Undertaking = RUN) -> Console:
    return Console(run, page.screen())


def live(page: Page, run: Undertaking = RUN) -> Console:
    return Console(run, page.screen(force_terminal=True))


def metrics(episodes: float, **others: float) -> dict[str, float]:
    return {
        "run/episodes": episodes,
        "episode/return": 21.3,
        "episode/length": 21.0,
        "episode/return_mean": 20.91,
    } | {name.replace("__", "/"): value for name, value in others.items()}


# --- what is said ------------------------------------------------------------------------------


def test_parallel_environments_are_announced(page: Page) -> None:
    plain(page)
    assert page.lines[:3] == [
        "Using 8 parallel environments for training",
        "Start method: forkserver",
        "Parallel mode: 8 environments",
    ]
    about = (
        "PPO on CartPole-v1 | backend process | device cpu | goal 1,000 episodes | folder runs/1"
    )
    assert page.lines[3] == about


def test_one_environment_is_announced_as_sequential(page: Page) -> None:
    plain(page, replace(RUN, num_envs=1, backend="serial"))
    assert page.lines[0] == "Sequential mode: 1 environment"
    assert "Start method" not in page.text
    assert "Using" not in page.text


def test_no_start_method_is_named_where_no_process_starts(page: Page) -> None:
    plain(page, replace(RUN, backend="serial", start_method=None))
    assert "Start method" not in page.text
    assert "Parallel mode: 8 environments" in page.lines


@pytest.mark.parametrize("kind", [plain, live])
def test_progress_is_told_in_these_words(page: Page, kind: Any) -> None:
    console = kind(page)
    console.write(300, metrics(7))
    page.now_s = 5.0
    console.write(400, metrics(10))
    console.close()
    assert "Episode 10/1000" in page.text
    assert "Reward: 21.3 | Length: 21 | Mean(100): 20.9" in page.text
    assert "n_completed_episodes: 3 | n_envs: 8" in page.text


@pytest.mark.parametrize("kind", [plain, live])
def test_a_run_bounded_by_steps_counts_steps(page: Page, kind: Any) -> None:
    console = kind(page, BY_STEPS)
    console.write(20_480, metrics(10))
    console.close()
    assert "Step 20,480/100,000" in page.text
    assert "Episode" not in page.text


@pytest.mark.parametrize("kind", [plain, live])
def test_of_two_bounds_the_nearer_one_is_shown(page: Page, kind: Any) -> None:
    console = kind(page, replace(RUN, total_steps=100_000, total_episodes=20))
    console.write(20_480, metrics(10))
    console.close()
    assert "Episode 10/20" in page.text
    assert "Step 20,480" not in page.text


@pytest.mark.parametrize("kind", [plain, live])
def test_a_run_without_a_bound_counts_on(page: Page, kind: Any) -> None:
    console = kind(page, replace(RUN, total_episodes=None))
    console.write(20_480, metrics(10))
    console.close()
    assert re.search(r"Step 20,480 (?!/)", page.text)


@pytest.mark.parametrize("kind", [plain, live])
def test_evaluations_have_a_line_of_their_own(page: Page, kind: Any) -> None:
    console = kind(page)
    console.write(100, metrics(10))
    found = {"return_mean": 487.12, "return_std": 12.3, "length_mean": 487.2, "episodes": 10.0}
    console.write(100, {f"eval/{name}": value for name, value in found.items()})
    console.close()
    assert "Evaluation: 487.1 ± 12.3 over 10 episodes, length 487" in [
        line.strip() for line in page.lines
    ]


@pytest.mark.parametrize("kind", [plain, live])
def test_restarts_are_told_when_their_number_grows(page: Page, kind: Any) -> None:
    console = kind(page)
    for step, restarts in enumerate([0, 0, 1, 1, 3]):
        console.write(step, metrics(1, engine__restarts=restarts))
    console.close()
    told = [line.strip() for line in page.lines if "restarted" in line]
    assert told == [
        "1 worker was restarted (1 since the run began)",
        "2 workers were restarted (3 since the run began)",
    ]


@pytest.mark.parametrize("kind", [plain, live])
def test_time_left_follows_from_the_pace_so_far(page: Page, kind: Any) -> None:
    console = kind(page)
    page.now_s = 9.0
    console.write(4_500, metrics(100))
    console.close()
    assert "1:21 left" in page.text, "900 episodes at 100 in 9 s"
    assert "500 steps/s" in page.text


def test_a_resumed_run_is_measured_from_where_it_went_on(page: Page) -> None:
    console = plain(page, replace(RUN, first_step=50_000, first_episode=500))
    page.now_s = 10.0
    console.write(51_000, metrics(600))
    assert "n_completed_episodes: 100 |" in page.text
    assert "| 100 steps/s | 0:40 left" in page.text


def test_the_engine_knows_its_own_speed(page: Page) -> None:
    console = plain(page)
    page.now_s = 10.0
    console.write(1000, metrics(10, engine__steps_per_s=12_345.6))
    assert "12,346 steps/s" in page.text


@pytest.mark.parametrize("kind", [plain, live])
def test_unknown_metrics_are_shown_as_they_are(page: Page, kind: Any) -> None:
    console = kind(page)
    console.write(
        1, metrics(10, team__height=3.25, team__goals=12, train__entropy=0.69315, odd=float("nan"))
    )
    console.close()
    assert re.search(r"height(=|: )3\.25", page.text)
    assert re.search(r"entropy(=|: )0\.693", page.text)
    assert re.search(r"goals(=|: )12(?!\.)", page.text)
    assert re.search(r"odd(=|: )–", page.text)


# --- where there is no terminal ----------------------------------------------------------------


def test_a_log_gets_at_most_one_line_every_so_many_episodes(page: Page) -> None:
    console = plain(page)
    for episodes in (3, 9, 12, 21, 22, 40):
        console.write(100 * episodes, metrics(episodes))
    console.close()
    told = [line.partition(" |")[0] for line in page.lines if line.startswith("Episode")]
    assert told == ["Episode 12/1000", "Episode 22/1000", "Episode 40/1000"]


def test_a_log_holds_nothing_but_text(page: Page) -> None:
    console = plain(page)
    console.write(1, metrics(10))
    console.finish({"Steps": "1"}, {"model": Path("m.pth")})
    assert "\x1b" not in page.getvalue()
    assert "\r" not in page.getvalue()


def test_a_long_line_is_not_broken(page: Page) -> None:
    console = plain(page)
    console.write(1, metrics(10, **{f"team__metric_{k}": float(k) for k in range(30)}))
    (line,) = [line for line in page.lines if line.startswith("Episode")]
    assert line.endswith("team/metric_29: 29")


def test_a_dumb_terminal_gets_plain_lines(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = live(page)
    console.write(1, metrics(10))
    console.close()
    assert "Episode 10/1000 | Reward" in page.text


def test_an_encoding_without_the_signs_is_no_error(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w", encoding="ascii") as file:
        console = Console(RUN, rich.console.Console(file=file))
        console.write(1, {"eval/return_mean": 487.12, "eval/return_std": 12.3})
        console.write(2, metrics(10, team__höhe=1.0))
        console.finish({"Höhe": "3 ± 1"}, {"Maß": Path("ü")})
    text = (tmp_path / "log").read_text()
    assert "Evaluation: 487.1 ? 12.3" in text
    assert "h?he: 1" in text
    assert re.search(r"H\?he[ |]+3 \? 1", text)
    assert "  Ma?  ?" in text


# --- on a terminal -----------------------------------------------------------------------------


def test_the_display_is_drawn_over_itself(page: Page) -> None:
    console = live(page)
    for step in range(3):
        page.now_s += 1.0
        console.write(step, metrics(step))
    assert page.getvalue().count("\x1b[1A") > 2, "it goes up to where it was"
    console.close()


def test_the_display_is_not_drawn_more_often_than_it_is_seen(page: Page) -> None:
    console = live(page)
    console.write(0, metrics(0))
    size = len(page.getvalue())
    for step in range(100):
        console.write(step, metrics(step))
    assert len(page.getvalue()) == size
    console.close()
    assert "Episode 99/1000" in page.text, "the last state is left there"


def test_a_display_has_no_thread(page: Page) -> None:
    import threading

    before = threading.active_count()
    console = live(page)
    console.write(0, metrics(0))
    assert threading.active_count() == before
    console.close()


def test_what_others_print_appears_above_the_display(page: Page) -> None:
    stdout = sys.stdout
    console = live(page)
    console.write(0, metrics(0))
    print("hello from a callback")
    console.close()
    assert "hello from a callback\n" in page.text
    assert sys.stdout is stdout


def test_close_gives_the_cursor_back_and_is_safe_twice(page: Page) -> None:
    console = live(page)
    console.write(0, metrics(0))
    assert page.getvalue().count(HIDE) == 1
    assert SHOW not in page.getvalue()
    console.close()
    console.close()
    assert page.getvalue().count(SHOW) == 1
    assert page.getvalue().endswith("\n" + SHOW)
    console.write(1, metrics(1))
    assert page.getvalue().endswith(SHOW), "and nothing is shown any more"


def test_a_run_that_never_wrote_leaves_the_cursor_alone(page: Page) -> None:
    live(page).close()
    assert HIDE not in page.getvalue()


@pytest.mark.parametrize("width", [20, 60])
def test_a_narrow_terminal_keeps_the_display_within_it(page: Page, width: int) -> None:
    screen = page.screen(force_terminal=True)
    screen.width = width
    console = Console(RUN, screen)
    start = len(page.text)
    console.write(1, metrics(10, train__policy_loss=0.1, train__value_loss=0.2))
    console.close()
    assert max(map(len, page.text[start:].splitlines())) <= width


# --- the end -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [plain, live])
def test_the_end_tells_what_came_out_and_where_it_is(page: Page, kind: Any) -> None:
    console = kind(page)
    console.write(0, metrics(0))
    deep = Path("/very") / ("long" * 40) / "final_model.pth"
    console.finish({"Total steps": "100,000", "Odd [bold]": "[/]"}, {"model": deep, "a": Path("b")})
    assert re.search(r"Total steps +100,000", page.text)
    assert re.search(r"Odd \[bold\] +\[/\]", page.text)
    assert f"  model  {deep}" in page.lines
    assert "  a      b" in page.lines


def test_a_closed_stream_is_silence(page: Page) -> None:
    stdout = sys.stdout
    console = live(page)
    console.write(0, metrics(0))
    page.close()
    page.now_s = 1.0
    console.write(1, metrics(1))
    console.write(2, {"eval/return_mean": 1.0})
    console.close()
    console.finish({"a": "b"}, {"c": Path("d")})
    assert sys.stdout is stdout


def test_a_full_disk_is_silence() -> None:
    with open("/dev/full", "w", buffering=1) as file:
        console = Console(RUN, rich.console.Console(file=file))
        console.write(1, metrics(10))
        console.finish({"a": "b"}, {})
        with pytest.raises(OSError, match="No space"):
            file.flush()
        with open(os.devnull, "w") as nowhere:  # so that closing it finds room
            os.dup2(nowhere.fileno(), file.fileno())


PROGRAM = """
import sys
from pathlib import Path
from shoal.monitor import Console, Undertaking
run = Undertaking("PPO", "CartPole-v1", 8, "serial", None, None, 1000, 1, "cpu", None)
console = Console(run)
{body}
"""


def start(body: str, **kwargs: Any) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    program = PROGRAM.format(body=body)
    return subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, **kwargs
    )


def read_until(fd: int, word: bytes | None, patience_s: float = 60.0) -> bytes:
    """What comes, until this word has come, or (None) all of it."""
    found, deadline = b"", time.monotonic() + patience_s
    while word is None or word not in found:
        assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0], found
        try:
            data = os.read(fd, 1 << 16)
        except OSError:  # how a pseudo-terminal says that nobody is there any more
            data = b""
        if not data:
            assert word is None, found
            break
        found += data
    return found


def test_ctrl_c_gives_the_terminal_back() -> None:
    body = """
try:
    for step in range(10**9):
        console.write(step, {"run/episodes": step, "episode/return": 1.0})
finally:
    console.close()
"""
    ours, theirs = pty.openpty()
    child = start(body, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    shown = read_until(ours, b"Reward")
    child.send_signal(signal.SIGINT)
    shown += read_until(ours, None)
    assert child.stderr is not None
    complaint = child.stderr.read().decode()
    child.stderr.close()
    child.wait()
    os.close(ours)
    text = shown.decode()
    assert text.count(HIDE) == text.count(SHOW) == 1
    assert text.endswith(SHOW)
    assert complaint.count("Traceback") == 1, complaint
    assert complaint.rstrip().endswith("KeyboardInterrupt")


def test_a_pipe_that_nobody_reads_does_not_end_the_run() -> None:
    ours, theirs = os.pipe()
    body = """
sys.stdin.read()
for step in range(1000):
    console.write(step, {"run/episodes": step})
console.finish({"a": "b"}, {})
sys.stderr.write("alive")
"""
    child = start(body, stdin=subprocess.PIPE, stdout=theirs, stderr=subprocess.PIPE)
    os.close(theirs)
    os.close(ours)
    _, complaint = child.communicate()
    assert complaint == b"alive"
    assert child.returncode == 0
