"""`shoal replay`, as a user meets it: what it says, what it opens, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from test_capsule import World, capsule_of, play

from shoal.cli import main
from shoal.engine.capsule import Capsule, write
from shoal.engine.commands import ResetArgs
from shoal.testing import CountingWorld, Saboteur
from shoal.testing.saboteurs import EXIT_CODE
from shoal.vector.source import resolve

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOAL_CAPSULES", str(tmp_path / "capsules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / "capsules"


def file_of(capsule: Capsule) -> str:
    path = write(capsule)
    assert path is not None
    return path


def failing(how: Any, *, at_step: int = 4, **others: Any) -> str:
    """The capsule of an environment that fails in this way at this step."""
    factory = partial(Saboteur, how, at_step=at_step)
    played = play(factory(), at_step - 1)
    return file_of(capsule_of(factory, played.episode, **others))


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "shoal", "replay", *arguments]


def in_process(*arguments: str, **others: Any) -> subprocess.CompletedProcess[str]:
    """What the command does in a process of its own, run from somewhere else."""
    env = {**os.environ, **others.pop("env", {})}
    env.pop("PYTHONUNBUFFERED", None)
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd="/", timeout=60, env=env, **others
    )


# --- what it reports ---------------------------------------------------------------------------


def test_an_exception_is_reproduced_with_its_traceback(capsys: Out) -> None:
    path = failing("raise", cause="env 3 raised ValueError in step (episode 1, step 3)")
    assert main(["replay", path]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "env 3 raised ValueError in step (episode 1, step 3)"
    assert lines[1] == "  env 3 of worker 1 raised in step"
    assert lines[2] == "  in episode 1, after 3 steps, last seed 7"
    assert "ValueError: sabotage in step (episode 0, step 4)" in lines
    assert any("saboteurs.py" in line for line in lines)
    assert lines[-1] == "reproduced: ValueError in step, after 3 steps"
    assert not any("warning" in line for line in lines)


PAGE = Path(__file__).parents[2] / "docs" / "capsules.md"


def test_the_page_shows_what_it_says(capsys: Out) -> None:
    (shown,) = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    cause = f"{shown.splitlines()[0]}\nIts own traceback follows as the cause."
    assert main(["replay", failing("raise", cause=cause)]) == 1
    said = capsys.readouterr().out
    when = re.compile(r"^  \d{4}-\d\d-\d\dT.*$", re.MULTILINE)
    assert when.search(shown)
    pattern = re.escape(when.sub("<when>", shown)).replace(re.escape("  ...\n"), "(?:  .*\n)+")
    assert re.fullmatch(pattern, when.sub("<when>", said))


def test_what_passes_is_not_reproduced(capsys: Out) -> None:
    path = file_of(capsule_of(World, play(World(), 2).episode))
    assert main(["replay", path]) == 0
    out = capsys.readouterr().out
    assert "the failing step passed: not reproduced\nDoes the environment depend on" in out
    assert "went another way" not in out


def test_a_replay_that_goes_another_way_says_so(capsys: Out) -> None:
    episode = play(World(), 2).episode
    path = file_of(capsule_of(World, replace(episode, episode_return=0.5), kind="died"))
    assert main(["replay", path]) == 0
    out = capsys.readouterr().out
    assert "The replay went another way than the record: its return so far is" in out
    assert "Was the worker killed from outside" in out


def test_a_step_that_is_not_reached_says_so(capsys: Out) -> None:
    env = World()
    env.reset(seed=7)
    played = play(env, env._length)
    longer = replace(played.episode, length=99, actions=[np.zeros(99)], is_over=False)
    path = file_of(capsule_of(World, longer))
    assert main(["replay", path]) == 0
    assert "the failing step was not reached: not reproduced" in capsys.readouterr().out


def test_a_failure_on_the_way_is_another_one(capsys: Out) -> None:
    path = file_of(capsule_of(partial(Saboteur, "raise", at_step=2), play(World(), 3).episode))
    assert main(["replay", path]) == 1
    assert capsys.readouterr().out.endswith(
        "another failure, before the failing step was reached: ValueError in replay, after 1 step\n"
    )


def test_a_constructor_is_reproduced(capsys: Out) -> None:
    path = file_of(capsule_of(partial(Saboteur, "raise", "construct"), phase="construct"))
    assert main(["replay", path]) == 1
    assert capsys.readouterr().out.endswith("reproduced: ValueError in construction\n")


def test_a_reset_is_reproduced(capsys: Out) -> None:
    capsule = capsule_of(partial(Saboteur, "raise", "reset"), phase="reset", reset=ResetArgs(1))
    assert main(["replay", file_of(capsule)]) == 1
    out = capsys.readouterr().out
    assert "reproduced: ValueError in reset, after 0 steps" in out
    assert "  before its first episode, last seed 7\n" in out


def test_an_environment_that_exits_does_not_choose_the_exit_code(capsys: Out) -> None:
    assert EXIT_CODE != 1
    assert main(["replay", failing("sys_exit")]) == 1
    assert "reproduced: SystemExit in step" in capsys.readouterr().out


def test_the_environment_is_closed_in_the_end(tmp_path: Path, capsys: Out) -> None:
    marker = tmp_path / "closed"
    path = file_of(capsule_of(partial(Closing, marker), play(World(), 2).episode))
    assert main(["replay", path]) == 0
    assert marker.exists()


class Closing(CountingWorld):
    """Leaves a file behind when it is closed."""

    def __init__(self, marker: Path) -> None:
        super().__init__(history=False)
        self.marker = marker

    def close(self) -> None:
        self.marker.touch()


def test_other_versions_are_a_warning(capsys: Out) -> None:
    path = failing("raise")
    with zipfile.ZipFile(path) as archive:
        header = json.loads(archive.read("capsule.json"))
        payload = archive.read("payload.pkl")
    header["versions"] |= {"numpy": "0.9.9"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("capsule.json", json.dumps(header))
        archive.writestr("payload.pkl", payload)
    assert main(["replay", path]) == 1
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert warnings == [f"warning: written with numpy 0.9.9, replayed with {np.__version__}"]


def test_the_first_traceback_is_shown_to_who_asks(capsys: Out) -> None:
    cause = "env 3 raised ValueError in step\nand more"
    path = failing("raise", cause=cause, trace="the stack of that time\n")
    main(["replay", path])
    out = capsys.readouterr().out
    assert "the stack of that time" not in out
    assert "and more" not in out
    main(["replay", path, "-v"])
    out = capsys.readouterr().out
    assert "the stack of that time\n" in out
    assert "env 3 raised ValueError in step\nand more\n" in out
    assert "made by functools.partial(<class 'shoal.testing.saboteurs.Saboteur'>" in out


# --- how it ends -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "number"), [("sigsegv", signal.SIGSEGV), ("abort", signal.SIGABRT)]
)
def test_a_death_is_a_death_again_and_shows_its_stack(how: str, number: int) -> None:
    done = in_process(failing(how, kind="died"))
    assert done.returncode == -number
    assert "It ended its worker, and may end this process now" in done.stdout
    assert "Fatal Python error" in done.stderr
    assert "mishap.py" in done.stderr
    assert "saboteurs.py" in done.stderr


def test_an_exit_is_an_exit_again() -> None:
    assert in_process(failing("os_exit", kind="died")).returncode == EXIT_CODE


HANGING = """
import sys, time
from shoal.testing import CountingWorld

class Hanging(CountingWorld):
    def step(self, action):
        if self._record.step == 2:
            self.wait_for_ever()
        return super().step(action)

    def wait_for_ever(self):
        print("here it comes", flush=True)
        while True:
            time.sleep(3600)
"""


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes the capsule of an environment that hangs (or so) in its third step."""
    (tmp_path / "hanging.py").write_text(HANGING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "hanging", raising=False)

    def make(kind: str = "hung") -> str:
        import hanging  # type: ignore[import-not-found]

        episode = play(CountingWorld(), 2).episode
        return file_of(capsule_of(hanging.Hanging, episode, kind=kind))

    return make


def until_it_hangs(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        command(*arguments), stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd="/"
    )
    assert child.stdout is not None
    said = ""
    for line in child.stdout:
        said += line
        if line == "here it comes\n":
            break
    return child, said


def test_a_module_is_found_in_the_folder_where_the_command_is_run(
    hanging: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    path = hanging("raised")
    monkeypatch.delitem(sys.modules, "hanging")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "hanging.py").rename(tmp_path / "elsewhere" / "hanging.py")
    assert main(["replay", path]) == 2
    assert "No module named 'hanging'" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr("time.sleep", finish)
    assert main(["replay", path]) == 1
    assert "reproduced: InterruptedError in step" in capsys.readouterr().out


def finish(seconds: float) -> None:
    raise InterruptedError


def test_a_hang_hangs_until_ctrl_c_shows_where(hanging: Callable[[], str]) -> None:
    child, said = until_it_hangs(hanging())
    assert "It hung. Where it hangs again Ctrl-C shows where" in said
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "in wait_for_ever" in out
    assert out.endswith("interrupted: KeyboardInterrupt in step, after 2 steps\n")
    assert err == ""


def test_a_hang_can_be_debugged(hanging: Callable[[], str]) -> None:
    child, _ = until_it_hangs(hanging(), "--pdb")
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate("p self._record.step\nq\n", timeout=30)
    assert child.returncode == 130
    assert "wait_for_ever()\n-> " in out
    assert "(Pdb) 2\n" in out


def test_a_hang_that_does_not_listen_shows_its_stack_too(hanging: Callable[[], str]) -> None:
    child, _ = until_it_hangs(hanging())
    child.send_signal(signal.SIGQUIT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == -signal.SIGQUIT
    assert "in wait_for_ever" in err


def test_the_debugger_opens_where_the_environment_raised() -> None:
    done = in_process(failing("raise"), "--pdb", input="p text\nup\nup\np self._step\nq\n")
    assert done.returncode == 1, done.stderr
    assert "raise ValueError(text)" in done.stdout
    assert "(Pdb) 'sabotage in step (episode 0, step 4)'" in done.stdout
    assert "(Pdb) 4\n" in done.stdout


def test_the_debugger_stays_away_where_nothing_failed() -> None:
    path = file_of(capsule_of(World, play(World(), 2).episode))
    done = in_process(path, "--pdb", input="")
    assert done.returncode == 0
    assert "Pdb" not in done.stdout


# --- showing -----------------------------------------------------------------------------------


class Shown(CountingWorld):
    """Writes down when it was shown."""

    metadata: dict[str, Any] = {"render_modes": ["human"], "render_fps": 30}  # noqa: RUF012

    def __init__(self, diary: Path, render_mode: str | None = None) -> None:
        super().__init__(history=False, render_mode=render_mode)
        self.diary = diary

    def render(self) -> Any:
        with self.diary.open("a") as file:
            file.write(f"{self.render_mode}{self._record.step} ")


def test_it_is_shown_after_the_reset_and_each_step(tmp_path: Path, capsys: Out) -> None:
    diary = tmp_path / "diary"
    factory = resolve(Shown, {"diary": diary}).factories[0]
    path = file_of(capsule_of(factory, play(World(), 3).episode))
    assert main(["replay", path]) == 0
    assert not diary.exists()
    assert main(["replay", path, "--render"]) == 0
    assert diary.read_text().split() == ["human0", "human1", "human2", "human3"]


def test_a_gymnasium_environment_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    factory = resolve("CartPole-v1", {"render_mode": "rgb_array"}).factories[0]
    path = file_of(capsule_of(factory, play(gymnasium.make("CartPole-v1"), 3).episode))
    done = in_process(path, "--render", env={"SDL_VIDEODRIVER": "dummy"})
    assert done.returncode == 0, done.stdout
    assert "the failing step passed" in done.stdout


class Blind(CountingWorld):
    def __init__(self) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        (resolve(CountingWorld).factories[0], "no render mode 'human', only 'rgb_array'"),
        (resolve(Blind).factories[0], "unexpected keyword argument 'render_mode'"),
        (resolve(lambda: CountingWorld()).factories[0], "keyword argument 'render_mode'"),
        (CountingWorld, "its factory takes no render_mode"),
    ],
    ids=["rgb_array", "class", "function", "bare"],
)
def test_what_cannot_be_shown_is_said_clearly(factory: Any, says: str, capsys: Out) -> None:
    path = file_of(capsule_of(factory, play(CountingWorld(), 2).episode))
    assert main(["replay", path, "--render"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("shoal replay: the environment cannot be shown: ")
    assert says in err
    assert err.endswith("Replay it without --render.\n")


# --- wrong input -------------------------------------------------------------------------------


def one_line(capsys: Out, path: object) -> str:
    assert main(["replay", str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("shoal replay: ")
    assert said.err.count("\n") == 1
    return said.err


def test_a_missing_file_is_one_clear_line(capsys: Out, tmp_path: Path) -> None:
    assert "there is no file" in one_line(capsys, tmp_path / "missing")


def test_a_folder_is_one_clear_line(capsys: Out, tmp_path: Path) -> None:
    assert "is not a capsule: it is no regular file" in one_line(capsys, tmp_path)


def test_a_damaged_file_is_one_clear_line(capsys: Out, tmp_path: Path) -> None:
    whole = Path(file_of(capsule_of(World, play(World(), 2).episode))).read_bytes()
    middle = whole.index(b"payload.pkl") + 60
    for name, held in {
        "flipped": whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :],
        "cut": whole[: len(whole) // 2],
        "empty": b"",
    }.items():
        path = tmp_path / name
        path.write_bytes(held)
        path.chmod(0o600)
        assert main(["replay", str(path)]) == 2
        said = capsys.readouterr().err
        assert "is not a capsule" in said
        assert "packages" not in said


def test_another_file_is_one_clear_line(capsys: Out) -> None:
    assert "is not a capsule: it is no zip file" in one_line(capsys, __file__)


def test_a_file_of_others_is_one_clear_line(capsys: Out) -> None:
    path = failing("raise")
    os.chmod(path, 0o666)
    assert "can be written by others" in one_line(capsys, path)


def test_an_incomplete_record_is_one_clear_line(capsys: Out) -> None:
    assert main(["replay", file_of(capsule_of(World, num_episodes=3))]) == 2
    said = capsys.readouterr()
    assert "in episode 3, whose record is not complete" in said.out
    assert re.fullmatch(r"shoal replay: the step that failed cannot be reached: .*\n", said.err)
