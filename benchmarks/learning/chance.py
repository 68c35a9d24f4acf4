"""Random players, which learn nothing: what learning is held against where no library is."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.learning import trial
from benchmarks.learning.rows import Row
from benchmarks.learning.tasks import Job
from benchmarks.learning.trial import EPISODES, Curve, env_of, row_of
from shoal.training.players import any_of
from shoal.vector.agents.cast import CAST, num_choices


def train(job: Job, num_episodes: int = EPISODES) -> Row:
    return row_of(job, _learn, num_episodes)


def _learn(job: Job, curve: Curve) -> trial.Player:
    env = env_of(job.task)
    env.close()
    if CAST not in env.metadata:
        return Alone(env.action_space, job.seed)
    is_alone = job.task.settings("shoal").get("eval_against") != "itself"
    return among_random(Player(env.metadata[CAST], job.seed, is_alone), job)


def among_random(player: trial.Player, job: Job) -> trial.Player:
    """The same player; where agents have opponents, it is one agent, and those are random."""
    if not job.task.has_opponents:
        return player
    env = env_of(job.task)
    env.close()
    return OneOfMany(player, env.metadata[CAST], job.seed)


class Alone:
    """Any action, of the one agent that there is."""

    def __init__(self, space: Any, seed: int) -> None:
        self._space, self._random = space, np.random.default_rng(seed)

    def begin(self) -> None: ...

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        return any_of(self._space, None, self._random)

    def gain(self, observation: Any, reward: float) -> float:
        return reward


class OneOfMany:
    """A team of which this plays one agent, another one in each episode; others do anything."""

    def __init__(self, player: trial.Player, cast: Any, seed: int) -> None:
        self._player, self._others = player, Player(cast, seed, is_alone=True)
        self._size, self._seat = len(cast), -1

    def begin(self) -> None:
        self._player.begin()
        self._seat = (self._seat + 1) % self._size

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        actions, own = self._others.act(observation), self._player.act(observation, info)
        if isinstance(actions, tuple):
            each = enumerate(actions)
            return tuple(own[k] if k == self._seat else action for k, action in each)
        actions[self._seat] = own[self._seat]
        return actions

    def gain(self, observation: Any, reward: float) -> float:
        return float(observation["rewards"][self._seat])


class Player:
    """Any action that is possible, of any agent.

    `is_alone`: where they take turns one seat is judged, another one in each episode.
    """

    def __init__(self, cast: Any, seed: int, is_alone: bool) -> None:
        self._cast, self._random = cast, np.random.default_rng(seed)
        self._is_alone = is_alone
        self._seat = -1

    def begin(self) -> None:
        self._seat = (self._seat + 1) % len(self._cast)

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        if "agent" in observation:
            return self._one(int(observation["agent"]), observation.get("mask"))
        masks = observation.get("masks", [None] * len(self._cast))
        each = [self._one(k, masks[k]) for k in range(len(self._cast))]
        return np.stack(each) if self._cast.acts_alike else tuple(each)

    def _one(self, k: int, mask: Any) -> Any:
        space = self._cast.action_spaces[k]
        if mask is None or not mask.any():
            return any_of(space, None, self._random)
        return any_of(space, mask[None, : num_choices(space)], self._random)

    def gain(self, observation: Any, reward: float) -> float:
        agent = observation.get("agent")
        is_judged = agent is None or not self._is_alone or int(agent) == self._seat
        return reward if is_judged else 0.0
