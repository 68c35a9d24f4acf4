"""Training: settings, checkpoints, run folders, evaluation, and the one loop."""

from shoal.training.stop import StopAt

__all__ = ["StopAt"]
