"""What `make train` learns, seed by seed, beside chance and a script.

python -m benchmarks.gameboy_learning                    by the game's own rewards
python -m benchmarks.gameboy_learning --novelty screen   by nothing but what is new (or ram)

Each pair of rows is a training by `configs/gameboy.yaml`, and 100 episodes of its final policy in
an environment of its own, with actions drawn as in training and with the most probable ones: how
often it took the key, opened the gate and won, and how many rooms and cells it has been in. Figures
are kept in benchmarks/results/gameboy.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gameboy import Figures, keep, nothing_but
from benchmarks.plan import RESULTS, ROOT
from benchmarks.run import without_folder
from shoal.envs.gameboy import GameBoyEnv
from shoal.envs.gameboy.players import ExploringPlayer, Player, RandomPlayer, ScriptedPlayer
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
    rooms: float
    cells: float


class Scores(NamedTuple):
    """Of one policy."""

    drawn: Score
    """With actions drawn as in training ..."""
    probable: Score
    """... and with the most probable ones."""


def trained(num_envs: int, seed: int, novelty: str | None = None, **changes: Any) -> Scores:
    """How the final policy of one training does, by the game's rewards or by novelty alone."""
    config = load_yaml(PPORun, ROOT / "configs" / "gameboy.yaml")
    if novelty is not None:
        changes["env_kwargs"] = config.envs.env_kwargs | nothing_but(novelty)
    config = override(config, n_envs=num_envs, seed=seed, backend="serial", device="cpu", **changes)
    with Training(config, config.envs.env) as training, threads(1, training.agent):
        learn(training.source, training.learner, Progress([]))

    def score(deterministic: bool) -> Score:
        player = training.player("auto", deterministic)
        return judged(lambda env, observation, info: player.act(observation, info), seed)

    return Scores(drawn=score(False), probable=score(True))


def by_chance(seed: int) -> Score:
    return by(RandomPlayer(seed), seed)


def by(player: Player, seed: int) -> Score:
    """Of somebody who learns nothing."""
    return judged(lambda env, observation, info: player.act(env), seed)


def judged(act: Act, seed: int, num_episodes: int = EPISODES) -> Score:
    env = GameBoyEnv()
    played = [_play(env, act, evaluation_seed(seed, k)) for k in range(num_episodes)]
    env.close()

    def mean(of: Callable[[Played], float]) -> float:
        return float(np.mean([of(one) for one in played]))

    return Score(
        shares={name: mean(lambda one, name=name: name in one.events) for name in EVENTS},
        episode_return=mean(lambda one: one.episode_return),
        length=mean(lambda one: one.length),
        rooms=mean(lambda one: 1 + one.events["new_room"]),
        cells=mean(lambda one: 1 + one.events["new_cell"]),
    )


class Played(NamedTuple):
    """One episode."""

    events: Counter[str]
    episode_return: float
    length: int


def _play(env: GameBoyEnv, act: Act, seed: int) -> Played:
    observation, info = env.reset(seed=seed)
    events: Counter[str] = Counter()
    total, length = 0.0, 0
    while True:
        observation, reward, terminated, truncated, info = env.step(act(env, observation, info))
        events.update(info)
        total, length = total + reward, length + 1
        if terminated or truncated:
            return Played(events, total, length)


def table(figures: Figures, given: argparse.Namespace) -> Iterator[str]:
    def line(name: str, seed: int, score: Score) -> str:
        figures.append({"player": name, "seed": seed, **score._asdict()})
        return _line(name, seed, score)

    yield "| player | seed | key | gate | won | rooms | cells | return | steps |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    yield line("by chance", 0, by_chance(0))
    yield line("scripted, the shortest way", 0, by(ScriptedPlayer(), 0))
    yield line("scripted, exploring", 0, by(ExploringPlayer(), 0))
    for seed in range(given.seeds):
        name = f"{given.num_envs} environment{'s' * (given.num_envs > 1)}, {given.steps:,} steps"
        scores = trained(given.num_envs, seed, given.novelty, total_steps=given.steps)
        yield line(name, seed, scores.drawn)
        yield line(f"{name}, most probable actions", seed, scores.probable)


def _line(name: str, seed: int, score: Score) -> str:
    shares = " | ".join(f"{score.shares[event]:.0%}" for event in EVENTS)
    return (
        f"| {name} | {seed} | {shares} | {score.rooms:.1f} | {score.cells:.0f} "
        f"| {score.episode_return:.1f} | {score.length:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num-envs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument(
        "--novelty", choices=["ram", "screen"], help="instead of the game's rewards"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "gameboy")
    given = parser.parse_args()
    command = ["python", "-m", "benchmarks.gameboy_learning", *without_folder(sys.argv[1:])]
    record, figures = Record.begin(command), Figures()
    for line in table(figures, given):
        print(line, flush=True)
    name = "learning" if given.novelty is None else f"novelty-{given.novelty}"
    print(f"\n{keep(record, f'{name}-{given.num_envs}-envs', figures, given.out)}")


if __name__ == "__main__":
    main()
