"""Makes the pictures of `docs/training.md`: the display, the curves and a frame of a CartPole run.

    python scripts/training_pictures.py --out docs/images

It trains for half a minute. The display is drawn as on a terminal of 100 columns, and kept as it
was when the run was two thirds over.
"""

import argparse
import io
import re
import shutil
import tempfile
from pathlib import Path

import rich.console

import shoal
from shoal.monitor import Console, Undertaking

ROOT = Path(__file__).parents[1]
WIDTH = 100
FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Fetched from elsewhere by whoever looks; any font of equal widths will do."""


class Display:
    """A callback that draws what a terminal shows, and keeps the latest."""

    def __init__(self, steps, num_envs):
        file = io.StringIO()
        self._screen = rich.console.Console(
            record=True, force_terminal=True, force_interactive=True, width=WIDTH, file=file
        )
        run = Undertaking(
            algorithm="PPO",
            env="CartPole-v1",
            num_envs=num_envs,
            backend="serial",
            start_method=None,
            total_steps=steps,
            total_episodes=None,
            log_interval=10,
            device="cpu",
            folder=None,
        )
        self._console, self._until = Console(run, self._screen), steps * 2 // 3
        self.svg = ""

    def __call__(self, run):
        if run.step > self._until:
            return
        self._screen.export_text(clear=True)  # what was drawn before is drawn over
        updates = {name: one for name, one in run.metrics.items() if not name.startswith("eval/")}
        self._console.write(run.step, updates)
        drawn = self._screen.export_svg(title="shoal train", clear=False, unique_id="shoal")
        if "Reward" in drawn:  # it draws ten times a second
            self.svg = FONT.sub("", drawn)

    def close(self):
        self._console.close()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images", metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=100_000, metavar="N")
    return parser.parse_args()


def keep_frame(film, place):
    """The picture in the middle of a film, as PNG."""
    from matplotlib.image import imsave
    from moviepy import VideoFileClip

    with VideoFileClip(str(film)) as clip:
        imsave(place, clip.get_frame(clip.duration / 2))


def main():
    given = parse()
    given.out.mkdir(parents=True, exist_ok=True)
    display = Display(given.steps, num_envs=8)
    with tempfile.TemporaryDirectory() as folder:
        done = shoal.train(
            "ppo",
            env="CartPole-v1",
            n_envs=8,
            backend="serial",
            learning_rate=1e-3,
            learning_rate_schedule="linear",
            batch_size=256,
            total_steps=given.steps,
            run_dir=folder,
            calibrate=False,
            tensorboard=False,
            shows=False,
            callbacks=[display],
        )
        display.close()
        (given.out / "training-display.svg").write_text(display.svg)
        shutil.copy(done.folder / "curves.png", given.out / "training-curves.png")
        film = done.folder / "videos" / "final.mp4"
        if film.is_file():
            keep_frame(film, given.out / "training-frame.png")
    print(f"in {given.out}: {', '.join(file.name for file in given.out.glob('training-*'))}")


main()
