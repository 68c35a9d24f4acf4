"""`ParallelEnvironment`: one Game Boy of several, each in the hands of a thread of its own."""

from __future__ import annotations

import os
from typing import Any

from shoal.envs.gameboy import GameBoyEnv
from shoal.errors import ContractError

Path = str | os.PathLike[str]


class ParallelEnvironment:
    """`shoal.envs.GameBoyEnv`, made when `initialize` is called, with a count of its episodes.

    Any number may be stepped at once, one thread each: emulating does not hold Python's lock.
    `env_id` is the seed of its first episode, and of the first after each `initialize`, so that no
    two play the same. `rom_path` is None for Tidekeep; a cartridge without a RAM map is seen by its
    pictures. `shoal.make` does more: it steps all of them with one call, and rebuilds those that
    are lost.
    """

    def __init__(
        self,
        env_id: int,
        rom_path: Path | None = None,
        episode_length: int | None = 500,
        ram_map: Path | None = None,
    ) -> None:
        self.env_id, self.rom_path, self.episode_length = env_id, rom_path, episode_length
        self._ram_map = ram_map
        self._env: GameBoyEnv | None = None
        self._num_episodes = self._length = 0
        self._seed: int | None = None
        self._reward = 0.0
        self._is_over = False

    def initialize(self) -> None:
        """Switch the console on, unless it is already."""
        if self._env is None:
            is_known = self.rom_path is None or self._ram_map is not None
            self._env = GameBoyEnv(
                self.rom_path,
                self._ram_map,
                "ram" if is_known else "pixels",
                episode_length=self.episode_length,
            )
            self._seed = self.env_id

    def reset_episode(self) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: its first observation, and what there is to know about it."""
        env = self._running()
        begun = env.reset(seed=self._seed)
        self._seed = None
        self._num_episodes += 1
        self._reward, self._length, self._is_over = 0.0, 0, False
        return begun

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward, whether it has ended, whether it was cut off, and the events."""
        result = self._running().step(action)
        self._reward += result[1]
        self._length += 1
        self._is_over = result[2] or result[3]
        return result

    def get_episode_stats(self) -> dict[str, Any]:
        """Of the running episode, or of the one that is over."""
        return {
            "env_id": self.env_id,
            "episode": self._num_episodes,
            "reward": self._reward,
            "length": self._length,
            "done": self._is_over,
        }

    def close(self) -> None:
        """Switch it off; safe twice."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _running(self) -> GameBoyEnv:
        if self._env is None:
            raise ContractError(
                f"environment {self.env_id} is not running. Call initialize() first."
            )
        return self._env
