"""What is asked of a measuring process, what it answers, and the record of many: all are JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from typing import Any

from shoal import measure
from shoal.measure import Figures, Job, Machine, Outcome

PACKAGES = ("torch", "stable-baselines3", "mujoco")
"""Whose versions a record notes, too."""
FOREVER = 10**9

Numbers = dict[str, float]
"""What was measured, by name; what could not be is not there.

    steps_per_s        steps of all environments, from the end of the first update on
    whole_s            from the start of the interpreter to the end of the last update
    whole_steps        steps until then
    start_s            from the start of the interpreter to the end of the first update
    update_s           one update: a rollout, and learning from it
    stepping           share of time in the environments
    inference          ... in choosing actions
    learning           ... in learning; what others do not tell apart is not there
    cpu_s_per_million  processor seconds of trainer and workers for a million steps
    others_cpu         cores that other programs kept busy meanwhile
    reached_s          from the start of the interpreter to the threshold
    reached_steps      ... and steps
    run_s              of `whole_s`, what the run itself took, its evaluations and all
    evaluation         mean return of the final policy
    best               the best mean return of a hundred training episodes
    kernels            share of time in which the GPU computed, from the kernels of one update
    copies             ... in which it copied
    busy               share of time in which it did anything, as nvidia-smi tells
    gradient_s         one gradient
    first_s            ... the first one, which may have to be compiled
    floor_acting_s     matrix products and convolutions of one update: of choosing actions
    floor_learning_s   ... and of learning
"""


@dataclass(frozen=True, slots=True)
class Task:
    """One training of one contestant, measured once."""

    contestant: str
    env: str
    """A Gymnasium id, or "module:factory"."""
    n_envs: int
    n_steps: int
    batch_size: int
    n_epochs: int
    steps: int
    """How many are measured, after the first update; of all environments together."""
    seed: int = 0
    device: str = "cpu"
    threshold: float | None = None
    """Train until the mean return of a hundred episodes is this, for `steps` at most."""

    @property
    def rollout(self) -> int:
        """Steps between two updates."""
        return self.n_steps * self.n_envs

    @property
    def total_steps(self) -> int:
        """How long the training is meant to be: what is measured of one without end is a part."""
        return FOREVER if self.threshold is None else self.steps

    @property
    def job(self) -> Job:
        """Who was measured where, as `shoal.measure` has it."""
        return Job(self.contestant, self.env, self.n_envs)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Task:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a task in one round."""

    task: Task
    round: int
    numbers: Numbers
    note: str = ""
    """What was chosen, where something was."""
    skipped: str = ""
    """Why there are no numbers."""

    @property
    def outcome(self) -> Outcome:
        """The same for the tables and ratios of `shoal.measure`."""
        if self.skipped:
            return Outcome(self.task.job, self.round, None, self.skipped)
        told = self.numbers.get
        figures = Figures(
            steps_per_s=told("steps_per_s"),
            cpu_s_per_million=told("cpu_s_per_million"),
            start_s=told("start_s"),
            others_cpu=told("others_cpu"),
            note=self.note,
        )
        return Outcome(self.task.job, self.round, figures)

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Answer:
        return cls(**{**told, "task": Task(**told["task"])})


def middle(answers: Iterable[Answer]) -> Numbers:
    """The median of each number."""
    by_name: dict[str, list[float]] = {}
    for answer in answers:
        for name, value in answer.numbers.items():
            by_name.setdefault(name, []).append(value)
    return {name: statistics.median(values) for name, values in by_name.items()}


@dataclass(slots=True)
class Record:
    """A run, as it is kept."""

    kind: str
    """Which table it is for."""
    machine: Machine
    begun: str
    asked: str
    """The command that regenerates it."""
    answers: list[Answer] = field(default_factory=list)

    @classmethod
    def begin(cls, kind: str, command: Sequence[str]) -> Record:
        base = measure.Record.begin(command)
        found = {name: version for name in PACKAGES if (version := _version(name))}
        machine = replace(base.machine, packages=base.machine.packages | found)
        return cls(kind, machine, base.begun, base.asked)

    @property
    def stem(self) -> str:
        """What its files are called."""
        return f"train-{self.kind}-{self.machine.name}-{self.begun[:10]}"

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Record:
        told = json.loads(text)
        answers = [Answer.from_dict(one) for one in told["answers"]]
        return cls(**{**told, "machine": Machine(**told["machine"]), "answers": answers})


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
