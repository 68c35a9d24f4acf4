"""The folder of a run: what is where in it.

runs/ppo-CartPole-v1-2026-01-31-120000/
    config.yaml      complete; reproduces the run
    metrics.jsonl    one line an update
    events.out...    the same for TensorBoard
    checkpoints/     best_model, checkpoint_ep{N}, latest_model, final_model;
                     or where config.yaml says
    videos/
    curves.png
    summary.json
    wandb_id.txt     which run of Weights & Biases it is, where it is one
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import ConfigError
from shoal.monitor import whole
from shoal.training.settings import document

SUFFIX = ".safetensors"

RUN_DIR = "Say where it can with --run-dir."
CHECKPOINT_DIR = "Say where they can with --checkpoint-dir."
OWN = "Go on from one of its checkpoints: that begins a folder of its own, where --run-dir says."


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths; nothing is made before it is needed."""

    root: Path
    checkpoints: Path

    @classmethod
    def create(cls, parent: Path, name: str, checkpoints: Path | None = None) -> Folder:
        """A new one, with a name that no other has; ConfigError where nothing can be written."""
        with _writing("the run", parent, RUN_DIR):
            root = _new(parent, f"{_plain(name)}-{time.strftime('%Y-%m-%d-%H%M%S')}")
        folder = cls(root, checkpoints or root / "checkpoints")
        try:
            folder.prepare()
        except ConfigError:
            folder.discard()
            raise
        return folder

    @classmethod
    def at(cls, root: Path, checkpoints: Path | None = None) -> Folder:
        """One that is there; ConfigError where nothing can be written."""
        folder = cls(root, checkpoints or root / "checkpoints")
        folder.prepare()
        return folder

    def prepare(self) -> None:
        """See that all can be written, and remove what a killed run has left unfinished."""
        with _writing("the run", self.root, OWN):
            _check(self.root)
        with _writing("checkpoints", self.checkpoints, CHECKPOINT_DIR):
            self.checkpoints.mkdir(parents=True, exist_ok=True)
            _check(self.checkpoints)
        for folder in (self.root, self.checkpoints):
            whole.sweep(folder)

    def write_config(self, text: str) -> None:
        """ConfigError where there is no room even for that."""
        with _writing("the configuration", self.config, RUN_DIR):
            whole.write(self.config, [text.encode()])

    def discard(self) -> None:
        """Take it away again, where nothing has been written."""
        own = [self.checkpoints] if self.checkpoints.is_relative_to(self.root) else []
        for folder in (*own, self.root):
            with contextlib.suppress(OSError):  # not empty: somebody needs it
                folder.rmdir()

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def curves(self) -> Path:
        return self.root / "curves.png"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def wandb_id(self) -> Path:
        return self.root / "wandb_id.txt"

    @property
    def videos(self) -> Path:
        return self.root / "videos"

    def film(self, name: str) -> Path:
        """Where the video of this name is kept."""
        return self.videos / f"{name}.mp4"

    def checkpoint(self, name: str) -> Path:
        """Where the checkpoint of this name is kept."""
        return self.checkpoints / (name + SUFFIX)


def checkpoints_of(folder: Path) -> Path:
    """Where its checkpoints are: where its config.yaml says, in `checkpoints`, or in itself."""
    for place in (_told(folder / "config.yaml"), folder / "checkpoints"):
        if place is not None and any(place.glob(f"*{SUFFIX}")):
            return place
    return folder


def _told(config: Path) -> Path | None:
    """The `checkpoint_dir` that a run was given, if there is a run and it was given one."""
    if not config.is_file():
        return None
    try:
        output = document.read(config).content.get("output")
    except ConfigError:  # somebody else's file of that name
        return None
    told = output.get("checkpoint_dir") if isinstance(output, dict) else None
    return Path(told) if isinstance(told, str) else None


def _new(parent: Path, stem: str) -> Path:
    root, number = parent / stem, 1
    while True:
        try:
            root.mkdir(parents=True)
            return root
        except FileExistsError:
            if not parent.is_dir():
                raise
        number += 1
        root = parent / f"{stem}-{number}"


def _plain(name: str) -> str:
    """Letters that every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"


@contextlib.contextmanager
def _writing(what: str, place: Path, advice: str) -> Iterator[None]:
    """What the system refuses is told as the user's to mend."""
    try:
        yield
    except OSError as problem:
        raise ConfigError(
            f"{what} cannot be written to {place}: {problem.strerror}. {advice}"
        ) from problem


def _check(folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "it is read-only")
