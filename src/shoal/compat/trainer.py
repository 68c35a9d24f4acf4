"""`PPOTrainer`: the training loop, a little at a time.

`train_episode_vectorized` is one turn of `shoal.training.loop.learn`: a rollout of all environments
and one update. `train_episode` is as many turns as it takes until an episode has ended. Whoever
calls them so often that as many updates were made gets the weights that `shoal.train` would have
got, bit for bit: there is no second loop.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.algos.agent import Agent, MakeNetwork
from shoal.algos.company import Company
from shoal.training import checkpoint, request
from shoal.training.config import PPORun
from shoal.training.evaluate import Evaluation
from shoal.training.loop import Progress, learn
from shoal.training.ppo import Training, threads
from shoal.vector.source import Source


class PPOTrainer:
    """PPO whose caller decides when the next update is made, and when it is enough.

    `env` is anything that `shoal.make` takes, such as an id or a list of factories (not a
    `ParallelEnv`: these environments are its own). One is trained in unless `n_envs` says how many.
    Other keywords are settings of a run, as `shoal.train` has them (`learning_rate=1e-3`, `seed=3`,
    `resume_from=...`); a goal is not needed, and when one that was given is reached nothing happens
    any more. Nothing is written but by `save`. Close it when done, or use it in a `with` statement.
    """

    def __init__(
        self,
        env: Source,
        n_envs: int | None = None,
        start_method: str | None = None,
        policy: MakeNetwork | None = None,
        **settings: Any,
    ) -> None:
        given = {"n_envs": n_envs, "parallel_start_method": start_method}
        chosen = {name: value for name, value in given.items() if value is not None}
        self.config: PPORun = request.settle("ppo", env, chosen | settings, is_endless=True)
        resumed = request.checkpoint_of(self.config)
        self._training = Training(self.config, request.source_of(env, self.config), policy)
        self._progress = self._training.progress
        if resumed is not None:
            self._resume(resumed)

    def _resume(self, resumed: checkpoint.Checkpoint) -> None:
        try:
            self._training.resume(resumed)
        except BaseException:
            self.close()
            raise

    @property
    def agent(self) -> Agent | Company:
        """What is being trained."""
        return self._training.agent

    def train_episode(self) -> dict[str, float]:
        """Update until an episode has ended, or several: an update takes whole rollouts.

        The result is that of `train_episode_vectorized`, for all of these updates together.
        """
        before = self._num_episodes
        return self._advance(lambda: self._num_episodes > before)

    def train_episode_vectorized(self) -> dict[str, float]:
        """One update, by `n_steps` steps of every environment, however many episodes end in them.

        The result has `episode_reward` and `episode_length` of the latest episode, `mean_reward`
        and `mean_length` of the latest 100 (none of these before one has ended), how many have
        ended in this call (`n_completed_episodes`), `n_envs`, `steps` so far, and what the update
        came to (`policy_loss`, `value_loss`, `entropy`, ...).
        """
        return self._advance(lambda: True)

    def evaluate(self, num_episodes: int = 10) -> Evaluation:
        """How the policy does, on an environment of its own; this changes nothing."""
        return self._training.evaluate(num_episodes)

    def save(self, path: str | Path) -> None:
        """Write a checkpoint, which `shoal.load`, `shoal.evaluate` and `resume_from=` take."""
        checkpoint.write(path, self._training.checkpoint())

    def close(self) -> None:
        """Close the environments; safe twice."""
        self._training.envs.close()

    def __enter__(self) -> PPOTrainer:
        return self

    def __exit__(self, *error: Any) -> None:
        self._training.__exit__(*error)

    @property
    def _num_episodes(self) -> int:
        return int(self._progress.metrics.get("run/episodes", 0))

    def _advance(self, is_enough: Callable[[], bool]) -> dict[str, float]:
        """Go on with the loop until it is enough."""
        progress, training, before = self._progress, self._training, self._num_episodes

        def stop(run: Progress) -> None:
            if is_enough():
                run.stop("enough for now")

        progress.stopped_by = None
        with threads(self.config.run.num_threads, training.agent):
            learn(training.source, training.learner, progress, [stop])
        return self._told(self._num_episodes - before)

    def _told(self, num_completed: int) -> dict[str, float]:
        latest = self._progress.metrics
        losses = {name.removeprefix("train/"): latest[name] for name in latest if "train/" in name}
        return {
            **{short: latest[name] for short, name in NAMES.items() if name in latest},
            "n_completed_episodes": num_completed,
            "n_envs": self.config.envs.n_envs,
            "steps": self._progress.step,
            **losses,
        }


NAMES = {
    "episode_reward": "episode/return",
    "episode_length": "episode/length",
    "mean_reward": "episode/return_mean",
    "mean_length": "episode/length_mean",
}
"""What results call the metrics of episodes."""
