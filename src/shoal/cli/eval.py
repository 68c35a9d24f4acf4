"""`shoal eval RUN`: how the agent of a run does."""

from __future__ import annotations

import argparse
from pathlib import Path

from shoal.extras import needs

SUMMARY = "evaluate the agent of a run, or of a checkpoint"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="a run's folder, or a checkpoint")
    parser.add_argument("--episodes", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--env", help="another environment than it was trained in")
    parser.add_argument("--seed", type=int, default=0, help="of the episodes (default 0)")
    parser.add_argument(
        "--eval-max-steps",
        type=int,
        metavar="STEPS",
        help="after so many an episode is left, if it has not ended (default: as in training)",
    )
    parser.add_argument(
        "--against",
        choices=["auto", "itself", "random"],
        default="auto",
        help="where agents take turns, who plays the others (default: random ones, from each seat)",
    )
    parser.add_argument(
        "--stochastic", action="store_true", help="draw actions, as in training; else take the best"
    )


def run(given: argparse.Namespace) -> int:
    with needs("torch"):
        from shoal.training.api import evaluate

    found = evaluate(
        given.run,
        episodes=given.episodes,
        env=given.env,
        seed=given.seed,
        deterministic=not given.stochastic,
        against=given.against,
        max_steps=given.eval_max_steps,
    )
    how = "stochastic" if given.stochastic else "deterministic"
    print(
        f"{found.mean:.2f} ± {found.std:.2f} over {len(found.returns)} episodes ({how}), "
        f"length {found.metrics()['eval/length_mean']:.1f}"
    )
    for agent, mean in found.by_agent.items():
        print(f"  {agent}: {mean:.2f}")
    return 0
