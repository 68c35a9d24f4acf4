"""Does anything stay behind of steps, and of environments that are closed?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
MANY = 75
CHILD = """
import gc, sys
import psutil
from shoal.envs.gameboy import GameBoyEnv

kept = []

def live(count, steps, closes):
    for _ in range(count):
        env = GameBoyEnv(observation="both", episode_length=50)
        env.reset(seed=0)
        for step in range(steps):
            if env.step(step % 7)[3]:
                env.reset()
        env.close() if closes else kept.append(env)
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20

count, steps, closes = (int(word) for word in sys.argv[1:])
before = live(10, 300, True)
print(live(count, steps, bool(closes)) - before)
"""


def grown_mb(count: int, steps: int, closes: bool = True) -> float:
    """By how much a process grows in which so many are made, stepped that often each and closed."""
    path = os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])
    words = [str(count), str(steps), str(int(closes))]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr
    return float(done.stdout)


@pytest.mark.parametrize(("count", "steps"), [(MANY, 0), (1, 10_000)])
def test_a_process_does_not_grow(count: int, steps: int) -> None:
    """An emulator that was left behind would be a megabyte, and a frame 7 KB."""
    assert grown_mb(count, steps) < 5


def test_growth_would_be_seen() -> None:
    assert grown_mb(MANY, 0, closes=False) > MANY / 2
