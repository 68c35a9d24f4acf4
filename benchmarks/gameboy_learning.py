"""What `make train` learns, seed by seed, beside chance: `python -m benchmarks.gameboy_learning`.

Each row is a training by `configs/gameboy.yaml`, and 100 episodes of its final policy (without
chance, in an environment of its own): how often it took the key, opened the gate and won. Figures
are kept in benchmarks/results/gameboy.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gameboy import Figures, keep
from benchmarks.plan import RESULTS, ROOT
from benchmarks.run import without_folder
from shoal.envs.gameboy import GameBoyEnv
from shoal.envs.gameboy.players import RandomPlayer
from shoal.measure import Record
from shoal.seeding import evaluation_seed
from shoal.training.config import PPORun
from shoal.training.loop import Progress, learn
from shoal.training.ppo import Training, threads
from shoal.training.settings import load_yaml, override

EPISODES = 100
EVENTS = ("key", "gate", "goal")

Act = Callable[[GameBoyEnv, Any, dict[str, Any]], Any]


class Score(NamedTuple):
    """Of some episodes: the share of those with each event, and means."""

    shares: dict[str, float]
    episode_return: float
    length: float


def trained(num_envs: int, seed: int, **changes: Any) -> Score:
    """How the final policy of one training does."""
    config = override(
        load_yaml(PPORun, ROOT / "configs" / "gameboy.yaml"),
        n_envs=num_envs,
        seed=seed,
        backend="serial",
        device="cpu",
        **changes,
    )
    with Training(config, config.envs.env) as training, threads(1, training.agent):
        learn(training.source, training.learner, Progress([]))
    player = training.player("auto")
    return judged(lambda env, observation, info: player.act(observation, info), seed)


def by_chance(seed: int) -> Score:
    player = RandomPlayer(seed)
    return judged(lambda env, observation, info: player.act(env), seed)


def judged(act: Act, seed: int, num_episodes: int = EPISODES) -> Score:
    env = GameBoyEnv()
    played = [_play(env, act, evaluation_seed(seed, k)) for k in range(num_episodes)]
    env.close()
    shares = {name: float(np.mean([name in events for events, _, _ in played])) for name in EVENTS}
    returns, lengths = zip(*((total, length) for _, total, length in played), strict=True)
    return Score(shares, float(np.mean(returns)), float(np.mean(lengths)))


def _play(env: GameBoyEnv, act: Act, seed: int) -> tuple[set[str], float, int]:
    """What happened in an episode, its return and its length."""
    observation, info = env.reset(seed=seed)
    events: set[str] = set()
    total, length = 0.0, 0
    while True:
        observation, reward, terminated, truncated, info = env.step(act(env, observation, info))
        events |= set(info)
        total, length = total + reward, length + 1
        if terminated or truncated:
            return events, total, length


def table(figures: Figures, num_envs: int, seeds: int, steps: int) -> Iterator[str]:
    def line(name: str, seed: int, score: Score) -> str:
        figures.append({"player": name, "seed": seed, **score._asdict()})
        return _line(name, seed, score)

    yield "| player | seed | took the key | opened the gate | won | return | steps |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    yield line("by chance", 0, by_chance(0))
    for seed in range(seeds):
        name = f"{num_envs} environment{'s' * (num_envs > 1)}, {steps:,} steps"
        yield line(name, seed, trained(num_envs, seed, total_steps=steps))


def _line(name: str, seed: int, score: Score) -> str:
    shares = " | ".join(f"{score.shares[event]:.0%}" for event in EVENTS)
    return f"| {name} | {seed} | {shares} | {score.episode_return:.1f} | {score.length:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=RESULTS / "gameboy")
    given = parser.parse_args()
    command = ["python", "-m", "benchmarks.gameboy_learning", *without_folder(sys.argv[1:])]
    record, figures = Record.begin(command), Figures()
    for line in table(figures, given.num_envs, given.seeds, given.steps):
        print(line, flush=True)
    print(f"\n{keep(record, f'learning-{given.num_envs}-envs', figures, given.out)}")


if __name__ == "__main__":
    main()
