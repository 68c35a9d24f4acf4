"""Shoal's PPO on one task, with one seed."""

from __future__ import annotations

from benchmarks.learning.chance import among_random
from benchmarks.learning.rows import Row
from benchmarks.learning.tasks import Job
from benchmarks.learning.trial import EPISODES, Curve, Player, row_of
from benchmarks.plan import ROOT
from shoal.training.config import PPORun
from shoal.training.loop import Progress, learn
from shoal.training.ppo import Training, threads
from shoal.training.settings import load_yaml, override


def train(job: Job, num_episodes: int = EPISODES) -> Row:
    return row_of(job, _learn, num_episodes)


def _learn(job: Job, curve: Curve) -> Player:
    def watch(run: Progress) -> None:
        found = run.metrics.get("episode/return_mean")
        if found is not None and curve.is_due(run.step):
            curve.add(run.step, found)

    config = config_of(job)
    with Training(config, config.envs.env) as training, threads(1, training.agent):
        learn(training.source, training.learner, Progress([]), [watch])
    return among_random(training.player(config.output.eval_against), job)


def config_of(job: Job) -> PPORun:
    """What the task's file says, with this seed; environments are stepped in this process.

    There a step cannot be ended, so that no bound of its time may be asked for.
    """
    return override(
        load_yaml(PPORun, ROOT / job.task.config),
        seed=job.seed,
        total_steps=job.task.steps,
        backend="serial",
        step_timeout_s=None,
        device="cpu",
    )
