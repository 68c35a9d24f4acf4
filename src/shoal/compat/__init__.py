"""Names that other code bases have for the same things: thin, for whoever comes from one.

    from shoal.compat import ParallelEnv, PPOTrainer

What they do is done by `shoal.make` and by the one training loop; new code calls those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.compat.parallel import ParallelEnv

if TYPE_CHECKING:
    from shoal.compat.trainer import PPOTrainer

__all__ = ["PPOTrainer", "ParallelEnv"]


def __getattr__(name: str) -> Any:
    # Stepping environments needs no torch.
    if name == "PPOTrainer":
        from shoal.compat.trainer import PPOTrainer

        return PPOTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
