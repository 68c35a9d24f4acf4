"""Games on real (emulated) Game Boys, by PyBoy; and Tidekeep, an adventure of our own.

    envs = shoal.make("shoal.envs.gameboy:shoal/Tidekeep-v0", num_envs=8)

Reading order: `config`, `console` (PyBoy), `fields`, `events` and `rammap` (what memory means),
`screen` (pictures), `novelty`, `env` (all of it as a Gymnasium environment), `episode` (one that is
kept), `players`; `build` with `assembler/` and `game/` is where the game comes from.
"""

from __future__ import annotations

import gymnasium

from shoal.envs.gameboy.config import GameBoyConfig
from shoal.envs.gameboy.env import ACTIONS, GameBoyEnv
from shoal.envs.gameboy.rammap import RamMap

__all__ = ["ACTIONS", "TIDEKEEP", "GameBoyConfig", "GameBoyEnv", "RamMap"]

TIDEKEEP = "shoal/Tidekeep-v0"
"""Registered when this module is imported, which `gymnasium.make` does for "module:id"."""

if TIDEKEEP not in gymnasium.registry:
    gymnasium.register(TIDEKEEP, entry_point="shoal.envs.gameboy.env:GameBoyEnv")
