"""Are videos whole, of whole episodes, and of no consequence for the environment?"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import shoal
from films import film
from shoal.errors import ConfigError, ContractError
from shoal.monitor import record_first, video
from shoal.monitor.video import Camera, write
from shoal.monitor.whole import part_of

moviepy = pytest.importorskip("moviepy")


def shade(level: int, height: int = 32, width: int = 48) -> np.ndarray[Any, Any]:
    return np.full((height, width, 3), level, np.uint8)


# --- frames into a file ------------------------------------------------------------------------


def test_every_frame_is_in_the_film_in_order(tmp_path: Path) -> None:
    levels = [20, 80, 140, 200, 250]
    write([shade(level) for level in levels], tmp_path / "videos" / "a.mp4", fps=10)
    found = film(tmp_path / "videos" / "a.mp4")
    assert np.allclose([frame.mean() for frame in found.frames], levels, atol=6)
    assert found.fps == 10
    assert found.is_silent
    assert [path.name for path in (tmp_path / "videos").iterdir()] == ["a.mp4"]


@pytest.mark.parametrize(
    ("given", "expected"), [((33, 47), (48, 34)), ((32, 47), (48, 32)), ((32, 48), (48, 32))]
)
def test_odd_sizes_become_even(
    tmp_path: Path, given: tuple[int, int], expected: tuple[int, int]
) -> None:
    write([shade(200, *given)] * 3, tmp_path / "a.mp4", fps=30)
    found = film(tmp_path / "a.mp4")
    assert found.size == expected
    assert len(found.frames) == 3
    assert found.frames[0].min() > 180, "the new row and column are no black edge"


def test_frames_may_come_from_a_generator(tmp_path: Path) -> None:
    write((shade(level) for level in range(100)), tmp_path / "a.mp4", fps=30)
    assert len(film(tmp_path / "a.mp4").frames) == 100


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [None],
        [shade(1).astype(np.float32)],
        [shade(1)[..., 0]],
        [np.zeros((32, 48, 4), np.uint8)],
        [shade(1), shade(1, 16, 16)],
    ],
    ids=["none", "no array", "floats", "grey", "four channels", "two sizes"],
)
def test_what_is_no_film_leaves_nothing(tmp_path: Path, frames: list[Any]) -> None:
    with pytest.raises(ContractError):
        write(frames, tmp_path / "a.mp4", fps=30)
    assert list(tmp_path.iterdir()) == []


def test_an_old_film_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    write([shade(10)] * 3, path, fps=30)
    before = path.read_bytes()

    def frames() -> Any:
        yield shade(200)
        assert path.read_bytes() == before
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(frames(), path, fps=30)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").mkdir()
    with pytest.raises(OSError, match=r"a\.mp4"):
        write([shade(10)] * 3, tmp_path / "a.mp4", fps=30)
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize("count", [3, 200], ids=["found at the end", "found on the way"])
def test_a_full_disk_is_an_oserror(tmp_path: Path, count: int) -> None:
    part_of(tmp_path / "a.mp4").symlink_to("/dev/full")
    noise = np.random.default_rng(0).integers(0, 255, (count, 64, 64, 3), np.uint8)
    with pytest.raises(OSError, match="No space left"):
        write(list(noise), tmp_path / "a.mp4", fps=30)
    assert list(tmp_path.iterdir()) == []


def test_the_absence_of_moviepy_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "moviepy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "moviepy", None)
    with pytest.raises(ConfigError, match=r'pip install "shoal-rl\[video\]"'):
        write([shade(1)], tmp_path / "a.mp4", fps=30)
    with pytest.raises(ConfigError, match=r'pip install "shoal-rl\[video\]"'):
        record_first(World, tmp_path, 10)


# --- an environment that films itself ----------------------------------------------------------


class World(gymnasium.Env[Any, Any]):
    """Episodes of ten steps; what it draws is as bright as the episode is old."""

    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.age = self.num_drawn = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        return self.np_random.random(2), {"options": options}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.age += 1
        drawn = self.np_random.random(2)
        return drawn, drawn[0] + action, self.age == 10, False, {"age": self.age}

    def render(self) -> Any:
        self.num_drawn += 1
        return shade(20 * self.age + 20) if self.render_mode == "rgb_array" else None


class Blind(World):
    """Takes a render mode, and cannot draw."""

    def render(self) -> Any:
        raise RuntimeError("no display")


def without_mode() -> World:
    return World()


def fixed_mode() -> World:
    return World("rgb_array")


def mode_by_position(render_mode: str | None = None, /) -> World:
    return World(render_mode)


def any_keyword(**kwargs: Any) -> World:
    return World(**kwargs)


def play(env: gymnasium.Env[Any, Any], steps: int) -> list[Any]:
    """All that an environment returns, reset included."""
    trace: list[Any] = [env.reset(seed=3, options={"x": 1})]
    for k in range(steps):
        trace.append(env.step(k % 2))
        if trace[-1][2]:
            trace.append(env.reset())
    return [pickle.dumps(entry) for entry in trace]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_what_the_environment_returns_is_unchanged(tmp_path: Path) -> None:
    env = record_first(World, tmp_path, 15)()
    assert play(env, 50) == play(World(), 50)
    env.close()
    assert len(names(tmp_path)) == 3


def test_the_next_whole_episode_after_so_many_steps_is_written(tmp_path: Path) -> None:
    env = record_first(World, tmp_path / "videos", 25)()
    play(env, 100)
    env.close()
    assert names(tmp_path / "videos") == [
        "step-000000000.mp4",
        "step-000000030.mp4",
        "step-000000060.mp4",
        "step-000000090.mp4",
    ]
    found = film(tmp_path / "videos" / "step-000000030.mp4")
    assert found.fps == 20
    expected = [20 * age + 20 for age in range(11)]
    assert np.allclose([frame.mean() for frame in found.frames], expected, atol=6)


def test_nothing_is_drawn_while_nothing_is_recorded(tmp_path: Path) -> None:
    env = record_first(World, tmp_path, 1000)()
    play(env, 500)
    assert env.unwrapped.num_drawn == 11
    env.close()


def test_an_episode_that_is_broken_off_is_not_written(tmp_path: Path) -> None:
    env = record_first(World, tmp_path, 1000)()
    env.reset()
    for _ in range(4):
        env.step(0)
    play(env, 10)
    assert names(tmp_path) == ["step-000000004.mp4"]
    env.close()


def test_a_film_under_way_at_close_leaves_nothing(tmp_path: Path) -> None:
    env = record_first(World, tmp_path, 1000)()
    play(env, 5)
    deadline = time.monotonic() + 60
    while not names(tmp_path):  # ffmpeg opens it in its own time
        assert time.monotonic() < deadline
    env.close()
    assert names(tmp_path) == []


def test_a_long_episode_is_filmed_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "MAX_FRAMES", 4)
    env = record_first(World, tmp_path, 1000)()
    play(env, 10)
    assert len(film(tmp_path / "step-000000000.mp4").frames) == 4
    assert env.unwrapped.num_drawn == 4
    env.close()


def test_a_film_with_all_its_frames_waits_for_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video, "MAX_FRAMES", 4)
    env = record_first(World, tmp_path, 1000)()
    play(env, 3)
    assert names(tmp_path) == ["step-000000000.mp4"], "the episode has seven steps more"
    env.close()


def test_a_rebuilt_environment_goes_on_from_the_latest_film(tmp_path: Path) -> None:
    first = record_first(World, tmp_path, 20)()
    play(first, 30)
    first.close()
    before = (tmp_path / "step-000000000.mp4").read_bytes()
    (tmp_path / ".step-000000020-123.mp4").write_bytes(b"left by a worker that was killed")
    second = record_first(World, tmp_path, 20)()
    play(second, 30)
    second.close()
    assert names(tmp_path) == ["step-000000000.mp4", "step-000000020.mp4", "step-000000040.mp4"]
    assert (tmp_path / "step-000000000.mp4").read_bytes() == before


def test_an_environment_that_cannot_draw_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = record_first(Blind, tmp_path, 10)()
    assert play(env, 50) == play(World(), 50)
    env.close()
    (record,) = caplog.records
    assert "no display" in record.getMessage()
    assert "The run goes on" in record.getMessage()
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "videos").write_text("in the way")
    env = record_first(World, tmp_path / "videos", 10)()
    assert play(env, 50) == play(World(), 50)
    assert len(caplog.records) == 1
    (tmp_path / "videos").unlink()
    play(env, 20)
    env.close()
    assert names(tmp_path / "videos") == ["step-000000060.mp4"], "it is tried again"


@pytest.mark.parametrize("factory", [World, any_keyword, partial(World), fixed_mode])
def test_a_factory_that_can_draw_is_filmed(
    tmp_path: Path, factory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    env = record_first(factory, tmp_path, 10)()
    assert isinstance(env, Camera)
    assert env.render_mode == "rgb_array"
    assert caplog.records == []


@pytest.mark.parametrize("factory", [without_mode, mode_by_position, dict])
def test_a_factory_that_takes_no_render_mode_is_one_warning(
    tmp_path: Path, factory: Any, caplog: pytest.LogCaptureFixture
) -> None:
    env = record_first(factory, tmp_path, 10)()
    assert type(env) in (World, dict)
    (record,) = caplog.records
    assert "there will be no video" in record.getMessage()


def test_the_factory_is_called_once(tmp_path: Path) -> None:
    calls = []

    def factory(**kwargs: Any) -> World:
        calls.append(kwargs)
        return World(**kwargs)

    record_first(factory, tmp_path, 10)()
    assert calls == [{"render_mode": "rgb_array"}]


def test_the_factory_travels(tmp_path: Path) -> None:
    factory = pickle.loads(pickle.dumps(record_first(partial(World), tmp_path, 10)))
    env = factory()
    play(env, 10)
    env.close()
    assert names(tmp_path) == ["step-000000000.mp4"]


def test_no_steps_at_all_cannot_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="every_steps is 0"):
        record_first(World, tmp_path, 0)


def test_environment_0_is_filmed_in_its_worker(tmp_path: Path) -> None:
    make = partial(gymnasium.make, "CartPole-v1")
    envs = shoal.make(
        [record_first(make, tmp_path, 10**6), make, make], backend="process", num_workers=2
    )
    envs.reset(seed=0)
    for _ in range(100):
        envs.step(np.zeros(3, np.int64))
    envs.close()
    assert names(tmp_path) == ["step-000000000.mp4"]
    found = film(tmp_path / "step-000000000.mp4")
    assert found.size == (600, 400)
    assert 5 < len(found.frames) < 60


SILENT = """
import os, sys
from functools import partial
import gymnasium
from shoal.monitor import record_first

before = dict(os.environ)
env = record_first(partial(gymnasium.make, "CartPole-v1"), sys.argv[1], 1)()
env.reset(seed=0)
while not any(env.step(0)[2:4]):
    pass
env.close()
print(dict(os.environ) == before)
"""


def test_filming_without_a_display_says_nothing_and_leaves_the_environment_alone(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pygame")
    about_screens = ("DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
    bare = {
        name: value
        for name, value in os.environ.items()
        if name not in about_screens and not name.startswith("SDL_")  # PettingZoo sets one
    }
    bare |= {"PYTHONPATH": str(Path(shoal.__file__).parents[1]), "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SILENT, str(tmp_path)], env=bare, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert names(tmp_path) == ["step-000000000.mp4"]
