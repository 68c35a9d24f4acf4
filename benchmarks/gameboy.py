"""What one Game Boy costs, and how well players do that learn nothing.

python -m benchmarks.gameboy speed      steps/s in a plain loop, time of a reset, memory
python -m benchmarks.gameboy players    returns and lengths of episodes by chance and by script
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil

from shoal.envs.gameboy import ACTIONS, GameBoyEnv
from shoal.envs.gameboy.players import RandomPlayer, Score, ScriptedPlayer, play

SETTINGS: dict[str, dict[str, Any]] = {
    "`ram`, 4 frames": {},
    "`ram`, 24 frames": {"frames_per_step": 24},
    "`pixels`, 4 frames": {"observation": "pixels"},
    "`pixels`, 24 frames": {"observation": "pixels", "frames_per_step": 24},
}
INSTANCES = 16


def speed(seconds: float) -> Iterator[str]:
    """A table of steps a second, by the wall clock and by the processor's."""
    yield "| observation, a step | steps/s | frames/s | steps per second of processor time |"
    yield "|---|--:|--:|--:|"
    for name, kwargs in SETTINGS.items():
        env = GameBoyEnv(**kwargs)
        frames = env.config.frames_per_step
        rate, busy_rate = _rate(_stepper(env), seconds)
        env.close()
        yield f"| {name} | {rate:,.0f} | {rate * frames:,.0f} | {busy_rate:,.0f} |"
    env = GameBoyEnv()
    rate, _ = _rate(env.reset, seconds / 4)
    state = env.save_state()
    loads, _ = _rate(lambda: env.reset(options={"state": state}), seconds / 4)
    yield ""
    yield f"A reset: {1e3 / rate:.2f} ms; from a saved state: {1e3 / loads:.1f} ms."
    yield "Memory: {:.0f} MB for a process with one, {:.1f} MB for each further one.".format(
        *_memory_mb()
    )


def _stepper(env: GameBoyEnv) -> Callable[[], object]:
    actions = iter(np.random.default_rng(0).integers(len(ACTIONS), size=10_000_000))
    env.reset(seed=0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset()

    return step


def _rate(work: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Calls in a second, and in a second of processor time."""
    work()
    count, begun, busy = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begun < seconds:
        work()
        count += 1
    return count / (time.perf_counter() - begun), count / (time.process_time() - busy)


def _memory_mb() -> tuple[float, float]:
    process = psutil.Process()
    kept = [GameBoyEnv()]
    kept[0].reset(seed=0)
    before = process.memory_info().rss
    for _ in range(INSTANCES):
        kept.append(GameBoyEnv())
        kept[-1].reset(seed=0)
    return before / 2**20, (process.memory_info().rss - before) / INSTANCES / 2**20


def players(episodes: int) -> Iterator[str]:
    """A table of how each player does."""
    env = GameBoyEnv()
    yield "| player | return | steps | won |"
    yield "|---|--:|--:|--:|"
    for name, player in (
        ("by chance", RandomPlayer(0)),
        ("scripted, the shortest way", ScriptedPlayer()),
        ("scripted, with the rupees on its way", ScriptedPlayer(rupees=True)),
    ):
        yield _row(name, play(env, player, range(episodes)))


def _row(name: str, scores: list[Score]) -> str:
    rewards, steps = (np.array([score[at] for score in scores]) for at in (0, 1))
    won = np.mean([score.won for score in scores])
    return (
        f"| {name} | {rewards.mean():.2f} ({rewards.min():.2f} to {rewards.max():.2f}) "
        f"| {steps.mean():.0f} ({steps.min():.0f} to {steps.max():.0f}) | {won:.0%} |"
    )


def main() -> None:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["speed", "players"])
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--episodes", type=int, default=200)
    given = parser.parse_args()
    lines = speed(given.seconds) if given.what == "speed" else players(given.episodes)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
