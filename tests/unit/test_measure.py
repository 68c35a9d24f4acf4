"""Are steps counted right, hangs cut off, figures what they are said to be? No time is asserted."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import shoal
from shoal.engine import machine
from shoal.measure import (
    BOUND,
    Course,
    Figures,
    Job,
    Mixed,
    Outcome,
    Record,
    Spread,
    TransitionCount,
    VectorSession,
    best,
    contest,
    fingerprint,
    paired_ratio,
    processes,
    run_job,
    sample_actions,
    summarise,
    time_pauses,
    time_steps,
)
from shoal.measure.contest import Where
from shoal.measure.fingerprint import checked_out
from shoal.measure.rivals import FILES, contestants, find
from shoal.measure.rivals.shoal import TwoGroups
from shoal.measure.summary import disturbance
from shoal.measure.table import as_markdown, as_text, body, seconds, skips
from shoal.measure.timing import NUM_SAMPLES, percentiles

MODES = list(AutoresetMode)
LENGTHS = (1, 2, 3, 7)


class Short(gymnasium.Env[Any, Any]):
    """Episodes of a known length; counts the steps that were really taken."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, length: int) -> None:
        self.length, self.age, self.taken = length, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.age = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.age < self.length, "stepped on after its end"
        self.age += 1
        self.taken += 1
        by_time = bool(self.taken % 2)
        ended = self.age == self.length
        return np.zeros(1, np.float32), 0.0, ended and not by_time, ended and by_time, {}


def factories() -> list[Any]:
    return [lambda length=length: Short(length) for length in LENGTHS]


# --- counting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("library", ["gymnasium", "shoal"])
def test_steps_are_those_that_environments_took(mode: AutoresetMode, library: str) -> None:
    if library == "gymnasium":
        envs: Any = SyncVectorEnv(factories(), autoreset_mode=mode)
    else:
        envs = shoal.make(factories(), backend="serial", autoreset=mode)
    session = VectorSession(envs)
    session.reset()
    counted = 0
    for _ in range(30):
        counted += session.step(np.zeros(len(LENGTHS), np.int64))
        assert counted == sum(envs.get_attr("taken"))
    session.close()


def slow_count(rows: list[tuple[list[int], list[bool]]], resets_take_a_call: bool) -> list[int]:
    """The rule, written out: a row is a transition unless its environment had just ended."""
    ended: dict[int, bool] = {}
    counts = []
    for env_ids, flags in rows:
        counts.append(sum(not (resets_take_a_call and ended.get(i, False)) for i in env_ids))
        for env_id, flag in zip(env_ids, flags, strict=True):
            ended[env_id] = flag and not (resets_take_a_call and ended.get(env_id, False))
    return counts


@pytest.mark.parametrize("resets_take_a_call", [True, False])
def test_transitions_of_some_environments_are_counted_as_the_rule_says(
    resets_take_a_call: bool,
) -> None:
    rng = np.random.default_rng(3)
    count = TransitionCount(6, resets_take_a_call=resets_take_a_call)
    rows, counted, ended = [], [], np.zeros(6, bool)
    for _ in range(200):
        ids = np.sort(rng.choice(6, size=rng.integers(1, 7), replace=False))
        # The row of an environment that is being reset tells no end.
        flags = (rng.random(len(ids)) < 0.4) & ~(ended[ids] & resets_take_a_call)
        ended[ids] = flags
        counted.append(count.of_some(flags, ids))
        rows.append((ids.tolist(), flags.tolist()))
    assert counted == slow_count(rows, resets_take_a_call)


def test_all_environments_are_counted_like_some() -> None:
    rng = np.random.default_rng(4)
    one, other = (TransitionCount(5, resets_take_a_call=True) for _ in range(2))
    ended = np.zeros(5, bool)
    for _ in range(100):
        ended = (rng.random(5) < 0.3) & ~ended
        assert one.of_all(ended) == other.of_some(ended, np.arange(5))


def test_a_row_of_a_reset_that_was_sent_for_is_no_step() -> None:
    count, none = TransitionCount(3, resets_take_a_call=True), np.zeros(2, bool)
    count.expect_resets()
    assert count.of_some(none, np.array([0, 1])) == 0
    assert count.of_some(none, np.array([1, 2])) == 1
    assert count.of_some(none, np.array([0, 2])) == 2


def test_a_reset_by_hand_is_no_end() -> None:
    count = TransitionCount(3, resets_take_a_call=True)
    count.of_all(np.array([True, True, False]))
    count.forget()
    assert count.of_all(np.zeros(3, bool)) == 3


def test_first_ready_counts_what_was_received() -> None:
    course = Course.named("CartPole-v1", 4, 2)
    session = find("shoal first-ready").open(course)
    session.reset()
    actions = [session.prepare(one) for one in sample_actions(session.action_space, 4)]
    steps = [session.step(one) for one in actions]
    session.close()
    assert all(0 <= count <= 4 for count in steps)
    assert sum(steps) >= 2 * len(steps) * 0.8  # CartPole ends every twenty steps or so


class Bookkeeper:
    """An environment of four that is told what is sent and received; two of them come at a time."""

    num_envs = 4
    single_action_space = gymnasium.spaces.Discrete(2)
    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.sent: list[list[int]] = []

    def send(self, actions: Any, env_ids: Any) -> None:
        assert not set(env_ids) & set(self.waiting), "sent on before it was received"
        self.sent.append(list(env_ids))
        self.waiting += list(env_ids)

    def recv(self, min_envs: int) -> Any:
        ids = np.array(sorted(self.waiting[-2:]))  # the latest first: those of the other group
        self.waiting = [one for one in self.waiting if one not in ids]
        none = np.zeros(len(ids), bool)
        return shoal.Batch(None, none, none, none, {}, ids)


def test_two_groups_step_in_turns_and_none_is_sent_before_it_was_received() -> None:
    envs: Any = Bookkeeper()
    session = TwoGroups(envs, "")
    steps = [session.step(np.zeros(4, np.int64)) for _ in range(6)]
    assert envs.sent == [[0, 2], [1, 3]] * 3
    assert sum(steps) + len(envs.waiting) == 12


def test_two_groups_count_what_was_received() -> None:
    session = find("shoal two groups").open(Course.named("CartPole-v1", 5, 2))
    session.reset()
    actions = [session.prepare(one) for one in sample_actions(session.action_space, 5)]
    steps = [session.step(one) for one in actions]
    session.close()
    assert sum(steps) <= 5 * len(steps) / 2
    assert sum(steps) >= 5 * (len(steps) / 2 - 1) * 0.8  # CartPole ends every twenty steps or so


# --- the timed loop -----------------------------------------------------------------------------


class Counting:
    """A session that says three transitions to every call."""

    action_space = gymnasium.spaces.Discrete(2)
    note = ""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def reset(self) -> None: ...

    def prepare(self, actions: Any) -> Any:
        return actions

    def step(self, prepared: Any) -> int:
        self.calls.append(prepared)
        return 3

    def close(self) -> None: ...


def test_the_loop_adds_up_what_calls_say_and_gives_actions_in_turn() -> None:
    session = Counting()
    timing = time_steps(session, [0, 1, 2], duration_s=0.01, warmup_s=0.0)
    assert timing.steps == 3 * timing.calls
    assert timing.wall_s >= 0.01
    assert timing.steps_per_s == timing.steps / timing.wall_s
    warm = len(session.calls) - timing.calls
    assert warm == 2
    assert session.calls == [number % 3 for number in range(len(session.calls))]
    assert 0 < timing.p50_s <= timing.p99_s


def test_percentiles_are_those_of_the_definition() -> None:
    latencies = [float(value) for value in range(1, 101)]
    p50, p99 = percentiles(latencies)
    assert p50 == statistics.median(latencies)
    assert p99 == pytest.approx(99.01)


def test_actions_are_sampled_the_same_every_time() -> None:
    space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    first, again = sample_actions(space, 5), sample_actions(space, 5)
    assert len(first) == NUM_SAMPLES
    assert first[0].shape == (5, 3)
    np.testing.assert_array_equal(first, again)


def test_a_pause_is_a_pause_and_then_a_call() -> None:
    session = Counting()
    pauses = time_pauses(session, [0], pause_s=0.01, num_pauses=2)
    assert pauses.wake_s >= 0
    if sys.platform.startswith("linux"):
        assert pauses.workers_cpu is not None


SPINNING = """
import itertools, threading
from shoal.measure import time_pauses

class Spinning:
    def step(self, prepared):
        return 1

threading.Thread(target=lambda: all(True for _ in itertools.count()), daemon=True).start()
print(time_pauses(Spinning(), [0], pause_s=0.2, num_pauses=1).workers_cpu)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_what_threads_burn_in_a_pause_is_told_as_well() -> None:
    command = [sys.executable, "-c", SPINNING]  # a process of its own: nothing else is below it
    burnt = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert float(burnt) > 0


# --- processes ----------------------------------------------------------------------------------

needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
PARENT = (
    "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'], "
    "stdin=subprocess.PIPE); print(p.pid, flush=True); input(); p.communicate(b'')"
)


@needs_proc
def test_processes_are_found_at_any_depth() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        below = processes.descendants()
        assert {child.pid, grandchild} <= set(below)
        assert processes.leaves([child.pid, grandchild]) == [grandchild]
        assert (processes.memory_mb(grandchild) or 0) > 0
        assert (processes.cpu_s([child.pid, grandchild]) or 0) > 0
        child.communicate("\n")
    assert child.pid not in processes.descendants()


@needs_proc
def test_processor_time_is_that_of_the_process() -> None:
    before, clock = processes.cpu_s([os.getpid()]), time.process_time()
    while time.process_time() - clock < 0.05:
        pass
    after = processes.cpu_s([os.getpid()])
    assert before is not None
    assert after is not None
    assert after > before


@needs_proc
def test_a_process_that_is_gone_costs_nothing() -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    assert processes.cpu_s([done.pid]) == 0
    assert processes.memory_mb(done.pid) is None


# --- jobs in processes of their own -------------------------------------------------------------

ODD = """
import os, subprocess, sys, time
from shoal.measure import Contestant, NotPossible
from shoal.measure.rivals import find

def hang(course):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(os.environ["ODD_PID"], "w").write(str(child.pid))
    time.sleep(600)

def refuse(course):
    raise NotPossible("only circles")

def fail(course):
    raise KeyError("what a pity")

def die(course):
    os._exit(3)

def talk(course):
    print("hello", flush=True)
    return find("gymnasium sync").open(course)

class Stubborn:
    def __init__(self, course):
        self.inner = find("gymnasium sync").open(course)
        self.action_space, self.note = self.inner.action_space, "stubborn"
        self.reset, self.prepare, self.step = self.inner.reset, self.inner.prepare, self.inner.step
    def close(self):
        time.sleep(600)

hanging, refusing, failing = (Contestant("odd", one) for one in (hang, refuse, fail))
dying, talking, stubborn = (Contestant("odd", one) for one in (die, talk, Stubborn))
missing = Contestant("odd", hang, needs="no_such_package")
"""


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Where:
    (tmp_path / "odd.py").write_text(ODD)
    monkeypatch.setenv("ODD_PID", str(tmp_path / "pid"))
    return Where(path=(str(tmp_path), str(Path(shoal.__file__).parents[1])))


def a_job(contestant: str, **more: Any) -> Job:
    return Job(contestant, "CartPole-v1", 2, duration_s=0.01, warmup_s=0.0, **more)


def test_who_hangs_is_cut_off_with_all_its_processes(odd: Where, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    outcome = run_job(a_job("odd:hanging"), where=odd, limit_s=5)
    assert outcome.figures is None
    assert outcome.skipped == "cut off after 5 s"
    assert pid_file.exists(), "it must have come as far as its own child"
    deadline = time.monotonic() + 10
    while _is_running(int(pid_file.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("odd:refusing", "only circles"),
        ("odd:failing", "KeyError: 'what a pity'"),
        ("odd:dying", "its process died without a word"),
        ("odd:missing", "no_such_package is not installed"),
        ("gymnasium asink", "ConfigError: there is no contestant 'gymnasium asink'."),
    ],
)
def test_who_cannot_says_why(odd: Where, name: str, reason: str) -> None:
    outcome = run_job(a_job(name), where=odd)
    assert outcome.figures is None
    assert outcome.skipped.startswith(reason)


def test_what_a_contestant_prints_does_no_harm(odd: Where) -> None:
    outcome = run_job(a_job("odd:talking"), where=odd)
    assert outcome.figures is not None
    assert (outcome.figures.steps_per_s or 0) > 0


@pytest.mark.slow
def test_a_close_that_hangs_costs_no_figures(odd: Where) -> None:
    outcome = run_job(a_job("odd:stubborn"), where=odd)
    assert outcome.figures is not None
    assert outcome.figures.note == "stubborn"


def test_a_measurement_has_all_its_figures() -> None:
    figures = run_job(a_job("shoal process", num_workers=2, pause_s=0.01)).figures
    assert figures is not None
    missing = {name for name in Figures.__dataclass_fields__ if getattr(figures, name) is None}
    of_a_gpu = {"gpu_processes", "gpu_mb"}
    assert missing == of_a_gpu if sys.platform.startswith("linux") else {"wake_s"} - missing
    assert (figures.num_processes or 0) >= 2
    assert (figures.descriptors or 0) > 0


def test_who_has_a_gpu_open_is_counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With a file in the place of a device."""
    monkeypatch.setattr(machine, "_GPU_DEVICES", (str(tmp_path),))
    assert processes.gpu_users([os.getpid()]) == []
    with open(tmp_path / "nvidia0", "w"):
        assert processes.gpu_users([os.getpid(), 2**30]) == [os.getpid()]


def test_only_the_start_is_measured_where_that_is_asked() -> None:
    figures = run_job(Job("gymnasium sync", "CartPole-v1", 2, duration_s=0)).figures
    assert figures is not None
    assert figures.steps_per_s is None
    assert (figures.start_s or 0) > 0


def test_the_bound_is_measured_like_everyone() -> None:
    figures = run_job(a_job(BOUND, num_workers=2)).figures
    assert figures is not None
    assert (figures.steps_per_s or 0) > 0
    assert figures.note == "2 processes"


def test_a_bound_that_cannot_be_measured_says_why(odd: Where, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def make():\n    raise OSError('no such simulator')\n")
    outcome = run_job(Job(BOUND, "broken:make", 2, duration_s=0.01), where=odd)
    assert "OSError: no such simulator" in outcome.skipped


KILLED = """
import os, signal
import gymnasium

class Killed(gymnasium.Wrapper):
    def step(self, action):
        try:
            os.close(os.open(os.environ["ODD_PID"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return super().step(action)
        os.kill(os.getpid(), signal.SIGKILL)

def make():
    return Killed(gymnasium.make("CartPole-v1"))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_bound_of_which_a_process_is_killed_says_so(odd: Where, tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    job = Job(BOUND, "killed:make", 2, num_workers=2, duration_s=0.01)
    outcome = run_job(job, where=odd, limit_s=30)
    for part in (
        "a process of the bound died stepping killed:make (pid ",
        "expected its steps per second, got exit code -9",
        "take fewer environments",
    ):
        assert part in outcome.skipped


def test_contestants_take_turns_and_who_was_skipped_is_not_asked_again(odd: Where) -> None:
    names = ["gymnasium sync", "odd:missing", "shoal serial"]
    outcomes = list(contest([a_job(name) for name in names], 2, where=lambda job: odd))
    assert [(one.round, one.job.contestant) for one in outcomes] == [
        (0, "gymnasium sync"),
        (0, "odd:missing"),
        (0, "shoal serial"),
        (1, "shoal serial"),
        (1, "gymnasium sync"),
    ]


# --- courses and contestants --------------------------------------------------------------------

mixed = Mixed(lambda env_id: lambda: Short(LENGTHS[env_id % 2]))


def test_environments_may_differ_by_their_number() -> None:
    course = Course.named(f"{__name__}:mixed", 4)
    assert course.is_mixed
    assert [factory().length for factory in course.factories] == [1, 2, 1, 2]


def test_every_contestant_is_found_by_its_name() -> None:
    everyone = list(contestants())
    assert len({one.name for one in everyone}) == len(everyone)
    for one in everyone:
        assert find(one.name) is one
        assert one.name.split()[0] in FILES
        assert list(one.workers(64, 2))


def test_the_machine_describes_itself() -> None:
    machine = fingerprint()
    assert machine.cores >= 1
    assert machine.packages["gymnasium"] == gymnasium.__version__
    assert " " not in machine.name
    built: Any = np.show_config(mode="dicts")
    assert built["Build Dependencies"]["blas"]["version"] in machine.blas
    if sys.platform == "linux":
        told = dict(part.rsplit(" ", 1) for part in machine.processor.split(", "))
        lines = Path("/proc/cpuinfo").read_text().replace("\t", "").splitlines()
        assert all(f"{name}: {value}" in lines for name, value in told.items())


def test_the_versions_of_all_that_can_be_measured_are_told() -> None:
    told = fingerprint().packages
    installed = importlib.metadata.packages_distributions()
    for module in {"numpy", "mujoco", "pyboy", "mpe2", *(one.needs for one in contestants())}:
        names = installed.get(module, ())  # several where a package is delivered in parts
        versions = {one.lower().replace("_", "-"): importlib.metadata.version(one) for one in names}
        assert not versions or versions.items() & told.items(), module


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_commit_is_that_of_the_checkout_and_an_installed_file_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)

    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.org", *words]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    known, installed = tmp_path / "known.py", tmp_path / "installed.py"
    known.write_text("1\n")
    installed.write_text("1\n")
    git("init", "-q")
    assert checked_out(known) == ""
    git("add", "known.py")
    git("commit", "-qm", "one")
    assert git("rev-parse", "HEAD").startswith(checked_out(known))
    assert len(checked_out(known)) == 10
    assert checked_out(installed) == ""
    known.write_text("2\n")
    assert checked_out(known).endswith("-dirty")


# --- summaries and tables -----------------------------------------------------------------------


def outcome(name: str, rates: list[float], num_envs: int = 8) -> list[Outcome]:
    job = Job(name, "CartPole-v1", num_envs)
    return [
        Outcome(job, number, Figures(steps_per_s=rate, p50_s=0.001, p99_s=0.25))
        for number, rate in enumerate(rates)
    ]


OUTCOMES = [
    *outcome(BOUND, [1000.0, 2000.0, 1500.0]),
    *outcome("shoal process", [500.0, 1200.0, 600.0]),
    *outcome("gymnasium sync", [250.0, 400.0, 300.0]),
    *outcome("gymnasium async", [100.0, 150.0, 90.0]),
    Outcome(Job("sb3 dummy", "CartPole-v1", 8), 0, None, "stable_baselines3 is not installed"),
]


def test_a_row_is_the_middle_of_its_rounds() -> None:
    rows = {row.job.contestant: row for row in summarise(OUTCOMES)}
    ours = rows["shoal process"]
    assert ours.steps_per_s == 600
    assert ours.spread == Spread(600, 500, 1200)
    assert ours.fraction == 0.5  # 0.5, 0.6, 0.4 in the three rounds
    assert rows["sb3 dummy"].skipped
    assert rows["sb3 dummy"].spread is None


def test_a_row_tells_every_choice_that_rounds_made() -> None:
    job, notes = Job("shoal auto", "CartPole-v1", 8), ["hybrid", "serial", "hybrid", ""]
    outcomes = [Outcome(job, number, Figures(1.0, note=note)) for number, note in enumerate(notes)]
    (row,) = summarise(outcomes)
    assert row.middle.note == "2 of 3 times hybrid; 1 of 3 times serial"
    (row,) = summarise(outcomes[::2])
    assert row.middle.note == "hybrid"


def test_ratios_are_taken_round_by_round() -> None:
    rows = {row.job.contestant: row for row in summarise(OUTCOMES)}
    ratio = paired_ratio(rows["shoal process"], rows["gymnasium sync"])
    assert ratio == Spread(2.0, 2.0, 3.0)
    assert paired_ratio(rows["shoal process"], rows["sb3 dummy"]) is None


def test_other_work_on_the_machine_is_told_where_it_disturbs() -> None:
    job = Job("shoal process", "CartPole-v1", 8)
    shares = [0.0, 0.1, 1.5, 1.7]
    outcomes = [Outcome(job, 0, Figures(1.0, others_cpu=share)) for share in shares]
    assert disturbance(outcomes[:2]) == ""
    assert "in 2 of 4 measurements (1.6 cores in the middle)" in disturbance(outcomes)
    assert disturbance([]) == ""


def test_the_best_is_the_fastest_that_was_measured() -> None:
    fastest = best(summarise(OUTCOMES), lambda row: row.job.contestant != BOUND)
    assert fastest is not None
    assert fastest.job.contestant == "shoal process"
    assert best([]) is None


def test_a_table_has_the_fastest_first_and_names_who_is_missing() -> None:
    rows = summarise(OUTCOMES)
    cells = body(rows)
    assert [line[0] for line in cells] == [
        "bound",
        "shoal process",
        "gymnasium sync",
        "gymnasium async",
    ]
    assert cells[1][1:6] == ["600", "500 to 1,200", "2.00×", "0.50", "–"]
    assert cells[1][6:] == ["1 ms", "250 ms"]
    assert skips(rows) == ["sb3 dummy: stable_baselines3 is not installed"]


def test_tables_are_text_or_markdown() -> None:
    headers, cells = ("who", "n"), [["a", "10"], ["bcd", "7"]]
    assert as_text(headers, cells) == "who   n\na    10\nbcd   7"
    assert as_markdown(headers, cells).splitlines() == [
        "| who | n |",
        "| --- | --: |",
        "| a | 10 |",
        "| bcd | 7 |",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (2e-7, "0.2 µs"), (1.5e-5, "15 µs"), (0.0123, "12.3 ms"), (2.5, "2.50 s")],
)
def test_times_are_shown_in_the_unit_that_suits_them(value: float | None, shown: str) -> None:
    assert seconds(value) == shown


def test_a_record_is_read_as_it_was_written() -> None:
    record = Record(fingerprint(), "2026-01-01 00:00 UTC", "some command", OUTCOMES)
    again = Record.from_json(record.to_json())
    assert again.outcomes == OUTCOMES
    assert again.machine == record.machine
    assert again.stem.endswith("-2026-01-01")
