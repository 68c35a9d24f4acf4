"""Every metric by name, with its meaning: the one dictionary that displays and docs come from.

Algorithms and callbacks add names of their own, which are shown as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

METRICS: Mapping[str, str] = MappingProxyType(
    {
        "run/episodes": "finished episodes, counted by when they began",
        "run/time_s": "seconds since the run began",
        "episode/return": "return of the latest episode that ended",
        "episode/length": "steps of the latest episode that ended",
        "episode/return_mean": "mean return of the latest 100 episodes",
        "episode/return_mean_10": "mean return of the latest 10 episodes",
        "episode/length_mean": "mean length of the latest 100 episodes",
        "train/policy_loss": "loss of the policy",
        "train/value_loss": "loss of the value function",
        "train/entropy": "entropy of the policy, in nats",
        "train/approx_kl": "estimated KL divergence of the latest update",
        "train/clip_fraction": "share of probability ratios that were clipped",
        "train/explained_variance": "share of the variance of returns that the values explain",
        "train/learning_rate": "learning rate of the latest update",
        "train/clip_range": "clip range of the latest update",
        "train/gradient_norm": "norm of the gradient before it was clipped",
        "train/epochs": "passes over the rollout in the latest update",
        "engine/steps_per_s": "environment steps per second",
        "engine/episodes_per_s": "finished episodes per second",
        "engine/restarts": "workers restarted so far",
        "engine/replays": "episodes replayed after a failure so far",
        "time/stepping": "share of the time spent stepping environments",
        "time/inference": "share of the time spent choosing actions",
        "time/learning": "share of the time spent learning",
        "eval/return_mean": "mean return of the evaluation",
        "eval/return_std": "standard deviation of the returns of the evaluation",
        "eval/length_mean": "mean length of the episodes of the evaluation",
        "eval/episodes": "episodes of the evaluation",
    }
)


def describe(name: str) -> str:
    """The meaning of a metric; an unknown one is its own description."""
    return METRICS.get(name, name)
