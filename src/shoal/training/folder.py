"""The folder of a run: what is where in it.

runs/ppo-CartPole-v1-2026-01-31-120000/
    config.yaml      complete; reproduces the run
    metrics.jsonl    one line an update
    events.out...    the same for TensorBoard
    checkpoints/     best_model, checkpoint_ep{N}, final_model
    videos/
    curves.png
    summary.json
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import ConfigError

SUFFIX = ".safetensors"


@dataclass(frozen=True, slots=True)
class Folder:
    """Paths; nothing is made before it is needed."""

    root: Path
    checkpoints: Path

    @classmethod
    def create(cls, parent: Path, name: str, checkpoints: Path | None = None) -> Folder:
        """A new one, with a name that no other has."""
        stem = f"{_plain(name)}-{time.strftime('%Y-%m-%d-%H%M%S')}"
        for suffix in itertools.chain([""], (f"-{k}" for k in itertools.count(2))):
            root = parent / (stem + suffix)
            try:
                root.mkdir(parents=True)
            except FileExistsError:
                if not root.is_dir():
                    raise ConfigError(
                        f"{parent} is no folder: runs cannot be kept there."
                    ) from None
                continue
            except OSError as problem:
                raise ConfigError(
                    f"the run's folder {root} cannot be made: {problem.strerror}. "
                    "Say where it can with --run-dir."
                ) from problem
            break
        return cls.at(root, checkpoints)

    @classmethod
    def at(cls, root: Path, checkpoints: Path | None = None) -> Folder:
        """One that is there; ConfigError where nothing can be written."""
        folder = cls(root, checkpoints or root / "checkpoints")
        try:
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise ConfigError(
                f"checkpoints cannot be written to {folder.checkpoints}: {problem.strerror}. "
                "Say where they can with --checkpoint-dir."
            ) from problem
        if not os.access(folder.checkpoints, os.W_OK):
            raise ConfigError(
                f"checkpoints cannot be written to {folder.checkpoints}: it is read-only. "
                "Say where they can with --checkpoint-dir."
            )
        return folder

    def discard(self) -> None:
        """Take it away again, where nothing has been written."""
        for folder in (self.checkpoints, self.root):
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
    def videos(self) -> Path:
        return self.root / "videos"

    def film(self, name: str) -> Path:
        """Where the video of this name is kept."""
        return self.videos / f"{name}.mp4"

    def checkpoint(self, name: str) -> Path:
        """Where the checkpoint of this name is kept."""
        return self.checkpoints / (name + SUFFIX)


def _plain(name: str) -> str:
    """Letters that every file system takes."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
