"""What is measured for each table, and with which settings: pure functions.

Only what is said here differs from defaults, which are the same in Shoal and Stable-Baselines3:
two hidden layers of 64 with tanh, for actions and for values apart, learning rate 3e-4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.learning.tasks import TASKS
from benchmarks.training.task import Task
from benchmarks.workloads import WORKLOADS

OURS, OVERLAP, AS_IT_COMES = "shoal", "shoal, overlap", "shoal as it comes"
LEAN = {"save_every": 0, "save_every_minutes": 0.0, "eval_every": 0, "calibrate": False}
"""Without checkpoints, evaluations and the comparison with one environment: others do none."""
SHOAL: dict[str, dict[str, Any]] = {
    OURS: LEAN,
    OVERLAP: LEAN | {"overlap": True},
    "shoal, serial": LEAN | {"backend": "serial"},
    AS_IT_COMES: {},
}
"""Settings beside those of the task."""
SB3: dict[str, dict[str, Any]] = {
    "sb3 dummy": {"backend": "dummy"},
    "sb3 dummy, 1 thread": {"backend": "dummy", "num_threads": 1},
    "sb3 subproc": {"backend": "subproc"},
    "sb3 subproc, 1 thread": {"backend": "subproc", "num_threads": 1},
}
GRADIENTS = {
    "as it is, NumPy": "as it is",
    "autograd, Adam tensor by tensor": "plain",
    "autograd, fused Adam": "fused",
    "autograd, fused Adam, torch.compile": "compiled",
}
"""Ways to one gradient."""
WITHOUT = {"shoal, no CUDA graphs": "graphs", "shoal, rollouts copied": "pages"}
"""Parts that training on a GPU can do without."""
FLOOR = "floor"
FLOORS = {
    FLOOR: "as it comes",
    "floor fp32": "fp32",
    "floor tf32": "tf32",
    "floor bf16": "bf16",
}

Groups = list[list[Task]]
"""Those of a group are measured in turn, and compared."""


class Course(NamedTuple):
    """What is trained, and how much there is to learn from at a time."""

    env: str
    batch_size: int
    n_epochs: int
    rollout: int | None = None
    """Steps of all environments between two updates ..."""
    n_steps: int = 0
    """... or of each."""
    asked: float = 0.0
    """How many times as fast as Stable-Baselines3."""

    def steps_of_each(self, n_envs: int) -> int:
        return self.n_steps if self.rollout is None else max(1, self.rollout // n_envs)


# CartPole as in RL Baselines3 Zoo, MuJoCo as in the paper.
AGAINST = {
    "CartPole-v1": Course("CartPole-v1", 256, 20, n_steps=32, asked=3.0),
    "HalfCheetah-v5": Course("HalfCheetah-v5", 64, 10, rollout=2048, asked=1.5),
}
AGAINST_ENVS = (8, 32)
SPEEDUP = {
    "cheap": Course("CartPole-v1", 64, 10, rollout=2048),
    "heavy": Course(WORKLOADS["work-500us"].env, 64, 10, rollout=2048),
    "gameboy": Course(WORKLOADS["gameboy-4"].env, 128, 4, rollout=2048),
}
SPEEDUP_ENVS = (1, 4, 8, 16)
CLAIMED = {4: 2.5, 8: 4.0, 16: 6.0}
"""How many times as fast as one environment others say that they are, on enough cores."""
PIXELS = Course(WORKLOADS["pixels-84"].env, 1024, 4, rollout=8192)
PIXELS_ENVS = (64, 256)
GRADIENT_OF, GRADIENT_SIZES = "CartPole-v1", (64, 256)


def _task(course: Course, contestant: str, n_envs: int, steps: int, device: str = "cpu") -> Task:
    n_steps = course.steps_of_each(n_envs)
    shape = (n_steps, min(course.batch_size, n_steps * n_envs), course.n_epochs)
    return Task(contestant, course.env, n_envs, *shape, steps, device=device)


def against(
    envs: Sequence[str], counts: Sequence[int], contestants: Sequence[str], steps: int
) -> Groups:
    """Everyone in the same training, for each environment and number of them."""
    return [
        [_task(AGAINST[env], one, n_envs, steps) for one in contestants]
        for env in envs
        for n_envs in counts
    ]


def speedup(
    kinds: Sequence[str],
    counts: Sequence[int],
    contestants: Sequence[str],
    rollout: int,
    steps: int,
) -> Groups:
    """Shoal with one environment and with more; a rollout is equally long for all."""
    courses = [SPEEDUP[kind]._replace(rollout=rollout) for kind in kinds]
    return [
        [
            _task(course, one, n_envs, steps)
            for n_envs in counts
            for one in contestants
            if n_envs > 1 or one != OVERLAP
        ]
        for course in courses
    ]


def threshold(contestants: Sequence[str]) -> Groups:
    """CartPole to the score at which it counts as solved; each with its own settings."""
    known = TASKS["cartpole"]
    told = known.sb3.ppo
    shape = (known.sb3.n_envs, told["n_steps"], told["batch_size"], told["n_epochs"], known.steps)
    return [[Task(one, known.env, *shape, threshold=known.threshold) for one in contestants]]


def ablate(sizes: Sequence[int], compiles: bool, device: str, steps: int) -> Groups:
    """One gradient of so many steps, in every way; on a GPU training from frames without parts."""
    ways = [one for one, way in GRADIENTS.items() if compiles or way != "compiled"]
    groups = [[Task(one, GRADIENT_OF, size, 1, size, 1, size) for one in ways] for size in sizes]
    if device == "cuda":
        groups += [
            [_task(PIXELS, one, n_envs, steps, device) for one in (OURS, *WITHOUT)]
            for n_envs in PIXELS_ENVS
        ]
    return groups


def gpu(
    counts: Sequence[int], contestants: Sequence[str], rollout: int, steps: int, device: str
) -> Groups:
    """Frames, and the floor in each precision."""
    floors = FLOORS if device == "cuda" else [FLOOR]
    course = PIXELS._replace(rollout=rollout)
    return [
        [_task(course, one, n_envs, steps, device) for one in (*contestants, *floors)]
        for n_envs in counts
    ]
