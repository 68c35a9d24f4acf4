"""Is wrong input refused in words, with exit status 2, before anything is left behind?"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

torch = pytest.importorskip("torch")

import shoal  # noqa: E402
from shoal.cli import main  # noqa: E402
from shoal.monitor.jsonl import read as read_rows  # noqa: E402
from shoal.training.checkpoint import Checkpoint, read, write  # noqa: E402

SRC = str(Path(shoal.__file__).parents[1])
SHORT: dict[str, Any] = {
    "n_envs": 2,
    "backend": "serial",
    "n_steps": 32,
    "n_epochs": 1,
    "total_steps": 256,
    "eval_episodes": 1,
    "save_every": 5,
    "calibrate": False,
    "tensorboard": False,
    "device": "cpu",
}


def flags(**changes: Any) -> list[str]:
    words = []
    for name, value in {**SHORT, **changes}.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words


class Told:
    """What the command line says, and with which status it ends."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> tuple[int, str]:
        try:
            status = main([str(one) for one in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        return status, self._capsys.readouterr().err


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(capsys)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run; never changed."""
    parent = tmp_path_factory.mktemp("trained")
    run = shoal.train("ppo", env="CartPole-v1", run_dir=parent, shows=False, **SHORT)
    return run.folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def final(folder: Path) -> Path:
    """Its last checkpoint."""
    return folder / "checkpoints/final_model.safetensors"


# --- environments --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole", "CartPole-v1"),
        ("CartPole-v7", "CartPole-v1"),
        ("HalfCheeta-v5", "HalfCheetah-v5"),
    ],
)
def test_of_an_unknown_environment_the_nearest_is_named(
    name: str, nearest: str, told: Told, tmp_path: Path
) -> None:
    status, words = told("train", "ppo", *flags(env=name, run_dir=tmp_path / "runs"))
    assert status == 2
    assert f"there is no environment {name!r}" in words
    assert f"Did you mean {nearest!r}?" in words
    assert words.count("Did you mean") == 1, "Gymnasium's own suggestion is one without a version"
    assert not (tmp_path / "runs").exists()
    with pytest.raises(shoal.ConfigError, match=f"Did you mean '{nearest}'"):
        shoal.train("ppo", env=name, total_steps=1)


@pytest.mark.parametrize("name", ["pistonball_v6", "pistonball-v6", "pistonball"])
def test_an_id_of_pettingzoo_without_its_group_is_told_in_full(
    name: str, told: Told, tmp_path: Path
) -> None:
    pytest.importorskip("pettingzoo")
    status, words = told("train", "ppo", *flags(env=name, run_dir=tmp_path / "runs"))
    assert status == 2
    assert "PettingZoo calls it 'butterfly/pistonball-v6'" in words
    with pytest.raises(shoal.ConfigError, match="PettingZoo calls it 'butterfly/pistonball-v6'"):
        shoal.make(name)


PACKAGES = [
    ("LunarLander-v3", "Box2D", 'pip install "gymnasium[box2d]"'),
    ("HalfCheetah-v5", "mujoco", 'pip install "gymnasium[mujoco]"'),
    ("ALE/Pong-v5", "ale_py", "pip install ale-py"),
    ("ale_py:ALE/Pong-v5", "ale_py", "pip install ale-py"),
]


@pytest.mark.parametrize(("name", "package", "command"), PACKAGES)
def test_a_package_that_an_environment_needs_is_named_with_its_command(
    name: str,
    package: str,
    command: str,
    told: Told,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    for arguments in (
        ["train", "ppo", *flags(env=name, run_dir=tmp_path / "runs")],
        ["eval", trained, "--env", name],
    ):
        status, words = told(*arguments)
        assert status == 2
        assert f"{name!r} needs {package}, which is not installed: {command}" in words
    assert not (tmp_path / "runs").exists()


class Wordy(gymnasium.Env[Any, Any]):
    """Speaks."""

    observation_space: spaces.Space[Any] = spaces.Text(5)
    action_space: spaces.Space[Any] = spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.observation_space.sample(), {}


class Partly(Wordy):
    """Speaks in one part."""

    observation_space = spaces.Dict({"place": spaces.Box(0, 1), "said": spaces.Text(3)})


class Several(Wordy):
    """Takes two actions at once."""

    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])


class Whole(Wordy):
    """Takes whole numbers of a range."""

    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Box(0, 5, (2,), np.int64)


@pytest.mark.parametrize(
    ("world", "parts"),
    [
        (Wordy, ["Text(1, 5", "is not supported for training", "Wrap the environment"]),
        (Partly, ["part ['said']", "Text(1, 3", "is not supported for training"]),
        (Several, ["action space", "Tuple(", "is not supported", "Wrap the environment"]),
        (Whole, ["action space", "int64", "is not supported", "Box of floats"]),
    ],
)
def test_spaces_that_cannot_be_learnt_are_named(
    world: type[Any], parts: list[str], told: Told, tmp_path: Path
) -> None:
    name = f"{__name__}:{world.__name__}"
    status, words = told("train", "ppo", *flags(env=name, run_dir=tmp_path))
    assert status == 2
    assert [part for part in parts if part not in words] == []
    assert list(tmp_path.iterdir()) == []


# --- checkpoints of others -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--env", "Acrobot-v1"], "the checkpoint is one of another environment (CartPole-v1)"),
        (["--env", "MountainCar-v0"], "this one's is Box("),
        (["--hidden-sizes", "8"], "the checkpoint is one of another network"),
        (["--memory", "gru"], "the checkpoint is one of another network"),
        (["--normalize-observations"], "the checkpoint is one of another network"),
        (["--n-envs", "4"], "is a checkpoint of 2 environments, and n_envs is 4"),
        (["--normalize-rewards"], "does not hold what this run needs"),
    ],
)
@pytest.mark.parametrize("which", ["folder", "file"])
def test_a_checkpoint_of_something_else_is_refused(
    which: str, changes: list[str], message: str, told: Told, folder: Path, final: Path
) -> None:
    before = sorted(folder.rglob("*"))
    where = {"folder": folder, "file": final}[which]
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    asked = ["--resume-from", where, "--run-dir", elsewhere, "--total-steps", "512", *changes]
    status, words = told("train", "ppo", *asked)
    assert status == 2
    assert message in words
    assert sorted(folder.rglob("*")) == before
    assert list(elsewhere.iterdir()) == [], "a folder was left"


def test_a_checkpoint_is_not_evaluated_in_an_environment_that_it_is_not_for(
    told: Told, trained: Path
) -> None:
    status, words = told("eval", trained, "--env", "Acrobot-v1")
    assert status == 2
    assert "the checkpoint is one of another environment (CartPole-v1)" in words


def test_an_environment_that_came_from_python_is_asked_for(told: Told, tmp_path: Path) -> None:
    class Mine(gymnasium.Wrapper[Any, Any, Any, Any]):
        def __init__(self) -> None:
            super().__init__(gymnasium.make("CartPole-v1"))

    run = shoal.train("ppo", env=Mine, run_dir=tmp_path, shows=False, **SHORT)
    for arguments in (
        ["train", "ppo", "--resume-from", run.folder, "--total-steps", "512"],
        ["eval", run.folder],
    ):
        status, words = told(*arguments)
        assert status == 2
        assert "there is no environment 'Mine'" in words
        assert "if it came from Python, give it here too" in words
    assert len(shoal.evaluate(run.folder, env=Mine, episodes=1).returns) == 1


# --- checkpoints that are damaged ----------------------------------------------------------------


def cut_in_half(path: Path) -> None:
    held = path.read_bytes()
    path.write_bytes(held[: len(held) // 2])


def cut_in_its_head(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def cut_by_a_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def change_a_weight(path: Path) -> None:
    held = bytearray(path.read_bytes())
    held[-5] ^= 1
    path.write_bytes(held)


def change_a_setting(path: Path) -> None:
    held = path.read_bytes()
    assert held.count(b"CartPole-v1") >= 1
    path.write_bytes(held.replace(b"CartPole-v1", b"CartPole-v0"))


def be_a_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": list(range(100))}))


def be_an_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"x" * 1000)


def be_of_somebody_else(path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(3)}, path)


def be_about_nothing(path: Path) -> None:
    write(path, Checkpoint({"a": torch.ones(3)}, {"step": 10**6}))


SPOILERS = [
    cut_in_half,
    cut_in_its_head,
    cut_by_a_byte,
    grow,
    empty,
    change_a_weight,
    change_a_setting,
    be_a_pickle,
    be_an_archive,
    be_of_somebody_else,
    be_about_nothing,
]


@pytest.mark.parametrize("spoil", SPOILERS)
def test_a_damaged_checkpoint_is_refused(
    spoil: Callable[[Path], None], told: Told, final: Path, tmp_path: Path
) -> None:
    spoil(final)
    asked = ["--resume-from", final, "--run-dir", tmp_path / "runs", "--total-steps", "512"]
    for arguments in (["train", "ppo", *asked], ["eval", final]):
        status, words = told(*arguments)
        assert status == 2
        assert str(final) in words
    assert not (tmp_path / "runs").exists()
    with pytest.raises(shoal.ConfigError, match=str(final)):
        shoal.load(final)


@pytest.mark.parametrize("spoil", [cut_in_half, change_a_weight, empty])
def test_a_folder_goes_on_from_the_last_checkpoint_that_is_whole(
    spoil: Callable[[Path], None],
    told: Told,
    folder: Path,
    final: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = read(final).about["step"]
    older = folder / "checkpoints/older.safetensors"
    shutil.copy(final, older)
    for path in folder.glob("checkpoints/*_*"):
        spoil(path)
    status, words = told("train", "ppo", "--resume-from", folder, "--total-steps", "320")
    assert (status, kept) == (0, 256), words
    assert f"passed over a checkpoint: {final}" in caplog.text
    assert json.loads((folder / "summary.json").read_text())["steps"] == 320


def test_a_run_that_has_reached_its_goal_says_so(
    told: Told, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = len(read_rows(folder / "metrics.jsonl"))
    status, _ = told("train", "ppo", "--resume-from", folder)
    assert status == 0
    assert "nothing was left to learn: at step 256 the goal was reached already" in caplog.text
    assert json.loads((folder / "summary.json").read_text())["steps"] == 256
    later = read_rows(folder / "metrics.jsonl")[before:]
    assert [row["step"] for row in later] == [256], "its evaluation"


@pytest.mark.parametrize("where", ["nowhere", "nowhere.safetensors"])
def test_a_checkpoint_that_is_not_there_is_told(where: str, told: Told, tmp_path: Path) -> None:
    path = tmp_path / where
    for arguments in (["train", "ppo", "--resume-from", path], ["eval", path]):
        status, words = told(*arguments)
        assert status == 2
        assert f"there is no checkpoint {path}" in words
    (tmp_path / "empty").mkdir()
    status, words = told("eval", tmp_path / "empty")
    assert status == 2
    assert "there is no readable checkpoint in" in words


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"total_steps": 0},
        {"num_episodes": -1},
        {"eval_episodes": 0},
        {"save_every": -1},
        {"log_interval": 0},
        {"num_threads": 0},
        {"seed": -1},
    ],
    ids=str,
)
def test_numbers_that_are_too_small_are_told(
    changes: dict[str, int], told: Told, tmp_path: Path
) -> None:
    status, words = told("train", "ppo", *flags(run_dir=tmp_path, **changes))
    ((name, _),) = changes.items()
    assert status == 2
    assert f"{name} must be at least" in words
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("count", ["0", "-3"])
def test_an_evaluation_of_no_episodes_is_told(count: str, told: Told, trained: Path) -> None:
    status, words = told("eval", trained, "--episodes", count)
    assert status == 2
    assert f"episodes must be at least 1, got {count}" in words


def test_a_list_of_factories_gives_each_environment_its_own() -> None:
    made = []

    def factory(number: int) -> Callable[[], Any]:
        def make() -> Any:
            made.append(number)
            return gymnasium.make("CartPole-v1")

        return make

    given = {**SHORT, "n_envs": None}
    few = {name: value for name, value in given.items() if value is not None}
    from shoal.compat import PPOTrainer

    with PPOTrainer([factory(k) for k in range(3)], **few):
        assert sorted(made) == [0, 1, 2]


# --- programs of their own -----------------------------------------------------------------------


def run_program(
    source: str, *arguments: object, inside: list[str] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(source)
    command = [*(inside or []), sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": SRC} | variables,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("command", [["train", "ppo"], ["eval", "somewhere"]])
def test_without_torch_the_command_that_installs_it_is_told(command: list[str]) -> None:
    source = (
        "import sys; sys.modules['torch'] = None\n"
        "from shoal.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    done = run_program(source, *command)
    assert done.returncode == 2
    assert 'pip install "shoal-rl[train]"' in done.stderr
    assert "Traceback" not in done.stderr


# What a superuser may do in spite of modes is given up, so that these mean the same to all.
READ_ONLY = """
    import ctypes, os, sys

    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0):
        sys.exit(77)
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], *sys.argv[2:]])
"""
COMMANDS = """
    import json, sys
    from shoal.cli import main

    for arguments in json.loads(sys.argv[1]):
        print(main(arguments), file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities")
def test_what_is_read_only_is_told_before_anything_begins(folder: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    new = ["train", "ppo", *flags()]
    on = ["train", "ppo", "--total-steps", "512", "--resume-from"]
    asked = [
        [*new, "--run-dir", str(closed)],
        [*new, "--run-dir", str(tmp_path), "--checkpoint-dir", str(closed)],
        [*on, str(folder)],
    ]
    before = sorted(tmp_path.rglob("*"))
    folder.chmod(0o500)
    closed.chmod(0o500)
    try:
        done = run_program(READ_ONLY, textwrap.dedent(COMMANDS), json.dumps(asked))
    finally:
        folder.chmod(0o700)
        closed.chmod(0o700)
    if done.returncode == 77:
        pytest.skip("privileges cannot be given up here")
    words = done.stderr.splitlines()
    assert words[1::2] == ["2", "2", "2"], done.stderr
    assert f"the run cannot be written to {closed}: Permission denied. Say where" in words[0]
    assert f"checkpoints cannot be written to {closed}: it is read-only. Say where" in words[2]
    assert f"the run cannot be written to {folder}: it is read-only. Go on from" in words[4]
    assert sorted(tmp_path.rglob("*")) == before


FULL = """
    import json, logging, resource, sys
    import shoal

    folder, settings = sys.argv[1], json.loads(sys.argv[2])
    logging.basicConfig(format="LOG %(message)s")

    def fill(run):
        # From here on no file grows beyond what it has: as on a disk without room.
        if run.num_updates == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))

    run = shoal.train(
        "ppo", env="CartPole-v1", run_dir=folder, callbacks=[fill], shows=False, **settings
    )
    print(json.dumps({"steps": run.summary["steps"], "is_saved": run.summary["is_saved"]}))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes")
def test_a_disk_that_fills_up_ends_no_run_and_spoils_no_checkpoint(tmp_path: Path) -> None:
    settings = SHORT | {"save_every": 1, "eval_every": 1, "tensorboard": True}
    done = run_program(FULL, tmp_path, json.dumps(settings))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"steps": 256, "is_saved": False}
    (folder,) = tmp_path.iterdir()
    told = [line for line in done.stderr.splitlines() if line.startswith("LOG")]
    assert any("cannot write metrics to" in line for line in told)
    assert any("final_model" in line and "could not be written" in line for line in told)
    assert any("no summary in" in line for line in told)
    assert any("no curves in" in line for line in told)
    assert "Traceback" not in done.stderr
    checkpoints = list((folder / "checkpoints").iterdir())
    assert checkpoints
    assert all(read(path).about["step"] <= 3 * 64 for path in checkpoints)
    run = shoal.train("ppo", resume_from=folder, total_steps=256, shows=False)
    assert run.summary["is_saved"]


TINY = (
    "unshare",
    "-Urm",
    "sh",
    "-c",
    'mount -t tmpfs -o size=200k tiny "$ROOM" && exec "$@"',
    "sh",
)


def can_mount(room: Path) -> bool:
    try:
        done = subprocess.run([*TINY, "true"], env=os.environ | {"ROOM": str(room)})
    except FileNotFoundError:
        return False
    return done.returncode == 0


ON_A_TINY_DISK = """
    import json, sys
    from pathlib import Path
    from shoal.cli import main
    from shoal.training.checkpoint import newest

    status = main(json.loads(sys.argv[1]))
    (folder,) = Path(sys.argv[2]).iterdir()
    path, held = newest(folder / "checkpoints")
    rows = (folder / "metrics.jsonl").read_bytes()
    print(json.dumps({"status": status, "step": held.about["step"], "rows": rows.count(b"\\n")}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces")
def test_a_run_goes_on_where_there_is_no_room_left(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    if not can_mount(room):
        pytest.skip("nothing can be mounted here")
    asked = ["train", "ppo", *flags(run_dir=room, save_every=1, total_steps=1024)]
    done = run_program(ON_A_TINY_DISK, json.dumps(asked), room, inside=list(TINY), ROOM=str(room))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == 1, "the final model could not be kept"
    assert 0 < found["step"] < 1024
    assert found["rows"] > 0
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


ON_A_FULL_DISK = """
    import os, sys
    from pathlib import Path
    from shoal.cli import main

    room = Path(os.environ["ROOM"])
    (room / "runs").mkdir()
    with open(room / "filler", "wb", buffering=0) as file:
        try:
            while file.write(bytes(1024)):
                pass
        except OSError:
            pass
    sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces")
def test_a_run_does_not_begin_where_there_is_no_room_at_all(tmp_path: Path) -> None:
    room = tmp_path / "room"
    room.mkdir()
    if not can_mount(room):
        pytest.skip("nothing can be mounted here")
    asked = ["train", "ppo", *flags(run_dir=room / "runs")]
    done = run_program(ON_A_FULL_DISK, *asked, inside=list(TINY), ROOM=str(room))
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_torch_python_is_told_the_same() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import shoal\n"
        "try: shoal.train\n"
        "except shoal.ConfigError as problem: print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "shoal-rl[train]"' in done.stdout
