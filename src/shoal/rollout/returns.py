"""Returns and advantages: pure functions along time, for each environment by itself.

Arrays are `[time, num_envs]`. A step that ended its episode is followed by the first one of the
next episode, and nothing is carried across that.
"""

from __future__ import annotations

import numpy as np

from shoal.layout import Array


def gae(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminations: Array,
    truncations: Array,
    valid: Array,
    *,
    gamma: float,
    gae_lambda: float,
) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016, equation 16).

    `next_values[t]` is the value of what a step led to, before any reset: where the step truncated
    its episode, that of the last observation. A step that is not `valid` (an environment was lost
    in it) has no advantage; the one before it is taken for truncated there.

        delta[t] = r[t] + gamma * (1 - terminated[t]) * next_value[t] - value[t]
        A[t]     = delta[t] + gamma * lambda * (1 - ended[t]) * A[t + 1]
    """
    deltas = rewards + gamma * np.where(terminations, 0.0, next_values) - values
    deltas = np.where(valid, deltas, 0.0).astype(values.dtype)
    ended = terminations | truncations | ~valid
    decay = np.where(ended, 0.0, gamma * gae_lambda).astype(values.dtype)
    advantages = np.empty_like(deltas)
    carried = np.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        np.multiply(decay[t], carried, out=advantages[t])
        advantages[t] += deltas[t]
        carried = advantages[t]
    return advantages


def next_values_of(values: Array, last_values: Array, final_values: Array, ended: Array) -> Array:
    """The value of what each step led to: the next row's, or the last observation's at an end.

    `last_values` are those of the observations after the last step.
    """
    following = np.concatenate([values[1:], last_values[None]])
    return np.where(ended, final_values, following)
