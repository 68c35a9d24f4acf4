"""Streams of random numbers: from one seed as many as are needed, none like another."""

from __future__ import annotations

import numpy as np
import torch

ACTING, LEARNING = range(2)
"""What a run draws random numbers for."""


def stream(seed: int, *which: int) -> torch.Generator:
    """The stream of this name."""
    (derived,) = np.random.SeedSequence([seed, *which]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(derived) >> 1)
