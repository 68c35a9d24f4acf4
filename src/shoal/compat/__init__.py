"""Names that other code bases have for the same things: thin, for whoever comes from one.

    from shoal.compat import ParallelEnv, ParallelEnvironment, PPOTrainer

What they do is done by `shoal.make` and by the one training loop; new code calls those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.compat.parallel import ParallelEnv

if TYPE_CHECKING:
    from shoal.compat.gameboy import ParallelEnvironment
    from shoal.compat.trainer import PPOTrainer

__all__ = ["PPOTrainer", "ParallelEnv", "ParallelEnvironment"]


def __getattr__(name: str) -> Any:
    # Stepping environments needs no torch, and most of them no emulator.
    if name == "PPOTrainer":
        from shoal.compat.trainer import PPOTrainer

        return PPOTrainer
    if name == "ParallelEnvironment":
        from shoal.compat.gameboy import ParallelEnvironment

        return ParallelEnvironment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
