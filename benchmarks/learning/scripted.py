"""The player that knows Tidekeep by heart: how far from the best is what was learnt?"""

from __future__ import annotations

from typing import Any

from benchmarks.learning.rows import Row
from benchmarks.learning.tasks import Job
from benchmarks.learning.trial import EPISODES, env_of, row_of
from shoal.envs.gameboy.players import ScriptedPlayer


def train(job: Job, num_episodes: int = EPISODES) -> Row:
    player = Knowing(env_of(job.task))
    return row_of(job, lambda job, curve: player, num_episodes, player.env)


class Knowing:
    """Looks into the memory of the game that it plays."""

    def __init__(self, env: Any) -> None:
        self.env, self._player = env, ScriptedPlayer()

    def begin(self) -> None: ...

    def act(self, observation: Any, info: dict[str, Any] | None = None) -> Any:
        return self._player.act(self.env.unwrapped)

    def gain(self, observation: Any, reward: float) -> float:
        return reward
