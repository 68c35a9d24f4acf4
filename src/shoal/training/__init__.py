"""Training: settings, checkpoints, run folders, evaluation, and the one loop."""
