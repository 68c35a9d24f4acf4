"""Checkpoints of a run: what is in one, when one is written, and how a run goes on from one."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from shoal.algos.agent import Agent
from shoal.algos.company import Company
from shoal.errors import ConfigError, ShoalError, shown
from shoal.layout import Array
from shoal.training.checkpoint import Checkpoint, newest, read, write
from shoal.training.folder import SUFFIX, checkpoints_of
from shoal.training.spaces import describe, space_of

log = logging.getLogger("shoal")

TOLD = ("algorithm", "step", "env", "observation_space", "action_space", "config", "kept")
"""What the checkpoint of a training run says about itself."""
EVALUATION = "evaluation"
"""... and that of the best one says, how good it was."""
RUN = "run"
"""... and one that is in a run's folder, or where that has its checkpoints, which folder it is."""


class Keeps(Protocol):
    """A source or a learner: what it keeps beside the agent's weights."""

    def state(self) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """Arrays or tensors, and what JSON can hold."""

    def put_state(self, arrays: Any, about: Mapping[str, Any]) -> Any: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """All that changes while a run goes on."""

    agent: Agent | Company
    learner: Keeps
    source: Keeps

    def checkpoint(self, about: Mapping[str, Any]) -> Checkpoint:
        """All of it, at this moment."""
        tensors = _prefixed("agent", self.agent.state_dict())
        kept: dict[str, Any] = {"version": self.agent.version}
        for name, part in (("learner", self.learner), ("source", self.source)):
            arrays, kept[name] = part.state()
            tensors |= _prefixed(name, arrays)
        return Checkpoint(tensors, {**about, "kept": kept})

    def put(self, checkpoint: Checkpoint) -> list[int]:
        """Go on from there; environments whose running episodes were lost."""
        load_weights(self.agent, checkpoint)
        try:
            return self._put(checkpoint.about["kept"], checkpoint.tensors)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as problem:
            if isinstance(problem, ShoalError):
                raise
            raise ConfigError(
                f"the checkpoint does not hold what this run needs ({type(problem).__name__}: "
                f"{problem}). Go on with the settings that it was made with."
            ) from problem

    def _put(self, kept: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[int]:
        self.agent.version = kept["version"]
        self.learner.put_state(_part("learner", tensors), kept["learner"])
        arrays = {name: one.numpy() for name, one in _part("source", tensors).items()}
        lost: list[int] = self.source.put_state(arrays, kept["source"])
        return lost


def load_weights(agent: Agent | Company, checkpoint: Checkpoint) -> None:
    """Give an agent the weights of a checkpoint; ConfigError where they are another network's."""
    weights, own = _part("agent", checkpoint.tensors), agent.state_dict()
    odd = [
        f"{name} is {_shape(weights.get(name))}, expected {_shape(own.get(name))}"
        for name in sorted(weights.keys() | own.keys())
        if _shape(weights.get(name)) != _shape(own.get(name))
    ]
    if odd:
        raise ConfigError(
            f"the checkpoint is one of another network: {'; '.join(odd[:3])}"
            f"{f' and {len(odd) - 3} more' if len(odd) > 3 else ''}. Use the configuration and "
            "policy that it was made with."
        )
    agent.load_state_dict(weights)


def check_spaces(
    about: Mapping[str, Any], observation: spaces.Space[Any], action: spaces.Space[Any]
) -> None:
    """Whether a checkpoint fits an environment."""
    for name, space in (("observation", observation), ("action", action)):
        if about[f"{name}_space"] != describe(space):
            raise ConfigError(
                f"the checkpoint is one of another environment ({about['env']}): its {name} space "
                f"is {shown(space_of(about[f'{name}_space']))}, this one's is {shown(space)}. Name "
                "the environment that it was made with, or start without it."
            )


def find(path: Path, name: str | None = None) -> tuple[Path, Checkpoint]:
    """The checkpoint that is meant by a file, a run's folder or a folder of checkpoints.

    In a folder it is the one of this `name`, if there is one, and else the newest.
    """
    if path.is_dir():
        found, checkpoint = _find_in(path, name)
    else:
        found, checkpoint = path, read(path)
    missing = [name for name in TOLD if name not in checkpoint.about]
    if missing:
        raise ConfigError(
            f"{found} is no checkpoint of a training run: it does not say {', '.join(missing)}. "
            "Use another one, or start without it."
        )
    return found, checkpoint


def _find_in(folder: Path, name: str | None) -> tuple[Path, Checkpoint]:
    """Where a run has its checkpoints outside its folder, other runs may have theirs."""
    place = checkpoints_of(folder)
    is_shared = not place.is_relative_to(folder)

    def is_meant(about: Mapping[str, Any]) -> bool:
        return not (is_shared and RUN in about and _is_another(Path(about[RUN]), folder))

    named = None if name is None else place / (name + SUFFIX)
    if named is not None and named.is_file() and is_meant((checkpoint := read(named)).about):
        return named, checkpoint
    return newest(place, is_meant)


def _is_another(run: Path, folder: Path) -> bool:
    return run.is_dir() and not run.samefile(folder)


def run_of(checkpoints: Path, checkpoint: Checkpoint) -> Path | None:
    """The folder of the run that has its checkpoints there, as this one of them says."""
    for run in (checkpoints.parent, Path(checkpoint.about.get(RUN, checkpoints))):
        if (run / "config.yaml").is_file() and checkpoints_of(run).samefile(checkpoints):
            return run
    return None


def score_of(path: Path) -> float:
    """How well the agent of a best model did when it was kept; -inf where nobody knows."""
    if not path.exists():
        return -math.inf
    try:
        score = float(read(path).about[EVALUATION]["eval/return_mean"])
        return -math.inf if math.isnan(score) else score
    except (ConfigError, KeyError, TypeError, ValueError) as problem:
        log.warning("%s does not say how good it is, and will be replaced: %s", path, problem)
        return -math.inf


def try_to_write(path: Path, checkpoint: Checkpoint) -> bool:
    """Write one; a disk that is full does not end a run, and the one before stays."""
    try:
        write(path, checkpoint)
    except OSError as problem:
        log.warning(
            "the checkpoint %s could not be written (%s); the run goes on, and the one before it "
            "is still there",
            path,
            problem.strerror or problem,
        )
        return False
    return True


def _prefixed(prefix: str, arrays: Mapping[str, Array | Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": _tensor(array) for name, array in arrays.items()}


def _tensor(array: Array | Tensor) -> Tensor:
    if isinstance(array, Tensor):
        return array.detach().cpu()
    return torch.from_numpy(np.array(array, order="C"))


def _part(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = prefix + "."
    return {
        name.removeprefix(start): tensor
        for name, tensor in tensors.items()
        if name.startswith(start)
    }


def _shape(tensor: Tensor | None) -> Any:
    return "missing" if tensor is None else list(tensor.shape)
