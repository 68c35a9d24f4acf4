"""What Game Boys cost, and how well players do that learn nothing.

python -m benchmarks.gameboy speed      steps/s in a plain loop, time of a reset, memory
python -m benchmarks.gameboy backends   time of a step on each backend, the least of many rounds
python -m benchmarks.gameboy many       hundreds at once: start, memory of each, steps/s
python -m benchmarks.gameboy soak       whether memory grows while many are stepped for long
python -m benchmarks.gameboy players    returns and lengths of episodes by chance and by script
python -m benchmarks.gameboy novelty    the same where nothing but what is new is worth anything
python -m benchmarks.gameboy train      whole training by `make train-20k`, in fresh processes

Figures are printed and kept in benchmarks/results/gameboy. `make bench-gameboy` compares backends
and rivals.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import shoal
from benchmarks.plan import RESULTS, ROOT, begin
from benchmarks.run import without_folder
from benchmarks.stages import least, sampled
from shoal.envs.gameboy import ACTIONS, GameBoyEnv
from shoal.envs.gameboy.env import RAM_MAP, ROM
from shoal.envs.gameboy.players import (
    ExploringPlayer,
    Player,
    RandomPlayer,
    Score,
    ScriptedPlayer,
    WaitingPlayer,
    play,
)
from shoal.envs.gameboy.rammap import RamMap
from shoal.measure import Record, claim, processes

SETTINGS: dict[str, dict[str, Any]] = {
    "`ram`, 4 frames": {},
    "`ram`, 24 frames": {"frames_per_step": 24},
    "`pixels`, 4 frames": {"observation": "pixels"},
    "`pixels`, 24 frames": {"observation": "pixels", "frames_per_step": 24},
}
INSTANCES = 16
ENV = "shoal.envs.gameboy:GameBoyEnv"
BACKENDS = ("serial", "thread", "process", "hybrid")
LINE_S = 60.0
"""From one line of a long run to the next."""
CLAIMS = (1_130, 1_360, 2_000)
"""Steps/s that public projects report of training at four frames a step."""
CLOSING = {
    "steps_per_s": "Steps per second",
    "episodes_per_s": "Episodes per second",
    "training_s": "Training time",
    "reward": "Average reward (last 10)",
}
"""What is taken of the block at the end of a run."""
LARGE_ROM_BYTES, CONTROLLER, SIZE_CODE = 4 * 2**20, 0x19, 7
"""What a header says of a cartridge with so much: MBC5, 256 banks."""

Figures = list[dict[str, Any]]
"""What is printed, for programs: lines of one kind have the same keys."""


def speed(figures: Figures, seconds: float) -> Iterator[str]:
    """A table of steps a second, by the wall clock and by the processor's."""
    yield "| observation, a step | steps/s | frames/s | steps per second of processor time |"
    yield "|---|--:|--:|--:|"
    for name, kwargs in SETTINGS.items():
        env = GameBoyEnv(**kwargs)
        frames = env.config.frames_per_step
        rate, busy_rate = _rate(_stepper(env), seconds)
        env.close()
        figures.append(
            {"env": kwargs, "steps_per_s": rate, "steps_per_processor_s": busy_rate},
        )
        yield f"| {name} | {rate:,.0f} | {rate * frames:,.0f} | {busy_rate:,.0f} |"
    env = GameBoyEnv()
    rate, _ = _rate(env.reset, seconds / 4)
    state = env.save_state()
    loads, _ = _rate(lambda: env.reset(options={"state": state}), seconds / 4)
    figures.append({"reset_s": 1 / rate, "reset_to_state_s": 1 / loads})
    yield ""
    yield f"A reset: {1e3 / rate:.2f} ms; from a saved state: {1e3 / loads:.1f} ms."
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.gb"
        large.write_bytes(_large_rom())
        for rom in (ROM, large):
            with get_context("spawn").Pool(1) as fresh:
                first_mb, further_mb = fresh.apply(_memory_mb, (rom,))
            size = rom.stat().st_size
            figures.append({"rom_bytes": size, "first_mb": first_mb, "further_mb": further_mb})
            yield (
                f"Memory, a cartridge of {size // 1024:,} KB: {first_mb:.0f} MB for the first of a "
                f"process, PyBoy with it, and {further_mb:.1f} MB for each further one."
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


def _memory_mb(rom: Path) -> tuple[float, float]:
    process, kept = psutil.Process(), []
    sizes = [process.memory_info().rss / 2**20]
    for _ in range(1 + INSTANCES):
        kept.append(GameBoyEnv(rom, RAM_MAP))
        kept[-1].reset(seed=0)
        sizes.append(process.memory_info().rss / 2**20)
    return sizes[1] - sizes[0], (sizes[-1] - sizes[1]) / INSTANCES


def _large_rom() -> bytes:
    """Tidekeep on as large a cartridge as there are."""
    rom = bytearray(ROM.read_bytes()).ljust(LARGE_ROM_BYTES, b"\0")
    rom[0x147], rom[0x148] = CONTROLLER, SIZE_CODE
    rom[0x14D] = -sum(byte + 1 for byte in rom[0x134:0x14D]) & 0xFF
    return bytes(rom)


def backends(figures: Figures, rounds: int) -> Iterator[str]:
    """A table of times, the same steps everywhere in turn: others at work hardly disturb it."""
    yield f"| frames a step | environments | {' | '.join(BACKENDS)} |"
    yield "|--:|--:|" + "--:|" * len(BACKENDS)
    for frames in (4, 24):
        for num_envs in (2, 4, 8, 16):
            with ExitStack() as until_done:
                pools = [
                    until_done.enter_context(
                        shoal.make(
                            ENV, num_envs, backend=one, env_kwargs={"frames_per_step": frames}
                        )
                    )
                    for one in BACKENDS
                ]
                times = least(pools, sampled(pools[0], 40), rounds)
            figures.append(
                {
                    "frames_per_step": frames,
                    "num_envs": num_envs,
                    "step_s": {name: one / 1e6 for name, one in zip(BACKENDS, times, strict=True)},
                }
            )
            told = " | ".join(f"{one / 1e3:.2f} ms" for one in times)
            yield f"| {frames} | {num_envs} | {told} |"


# --- many, and for long ---------------------------------------------------------------------------


def many(figures: Figures, num_envs: int, backend: str, seconds: float) -> Iterator[str]:
    """What so many cost at once."""
    before, begun = _total_mb(), time.perf_counter()
    with shoal.make(ENV, num_envs, backend=backend) as envs:
        envs.reset(seed=0)
        start_s = time.perf_counter() - begun
        rate, _ = _rate(_all_stepper(envs), seconds)
        workers = envs.stats()["num_workers"]
        each_mb = (_total_mb() - before) / num_envs
    figures.append(
        {
            "num_envs": num_envs,
            "backend": backend,
            "num_workers": workers,
            "start_s": start_s,
            "mb_each": each_mb,
            "steps_per_s": rate * num_envs,
        }
    )
    yield f"{num_envs} Game Boys on {backend}, {workers} workers: ready after {start_s:.1f} s,"
    yield f"{each_mb:.2f} MB each, {rate * num_envs:,.0f} steps/s of all together."


def soak(figures: Figures, num_envs: int, backend: str, minutes: float) -> Iterator[str]:
    """Memory of all processes, and descriptors of this one, line by line.

    Only what is a process's own counts: the rest depends on who else uses the same libraries.
    """
    until, steps, sizes = time.monotonic() + 60.0 * minutes, 0, []
    with shoal.make(ENV, num_envs, backend=backend) as envs:
        step = _all_stepper(envs)
        yield "| minutes | steps | MB | descriptors | restarts |"
        yield "|--:|--:|--:|--:|--:|"
        begun = time.monotonic()
        while time.monotonic() < until:
            line = min(until, time.monotonic() + LINE_S)
            while time.monotonic() < line:
                step()
                steps += num_envs
            sizes.append(_own_mb())
            passed, told = (time.monotonic() - begun) / 60, envs.stats()["restarts"]
            descriptors = processes.num_descriptors()
            figures.append(
                {
                    "minutes": passed,
                    "steps": steps,
                    "mb": sizes[-1],
                    "descriptors": descriptors,
                    "restarts": told,
                }
            )
            yield f"| {passed:.1f} | {steps:,} | {sizes[-1]:.1f} | {descriptors} | {told} |"
    yield ""
    yield f"{sizes[-1] - sizes[0]:+.1f} MB from the first line to the last, {num_envs} Game Boys."


def _all_stepper(envs: shoal.VectorEnv) -> Callable[[], object]:
    generator, size = np.random.default_rng(0), envs.num_envs
    envs.reset(seed=0)
    return lambda: envs.step(generator.integers(len(ACTIONS), size=size))


def _total_mb() -> float:
    """Of this process and all below it; what is shared counts once."""
    return sum(processes.memory_mb(pid) or 0.0 for pid in _pids())


def _own_mb() -> float:
    return float(sum(psutil.Process(pid).memory_full_info().uss for pid in _pids()) / 2**20)


def _pids() -> list[int]:
    return [os.getpid(), *processes.descendants()]


# --- players --------------------------------------------------------------------------------------


def players(figures: Figures, episodes: int, episode_length: int) -> Iterator[str]:
    """A table of how each player does."""
    env = GameBoyEnv(episode_length=episode_length)
    yield "| player | return | steps | won |"
    yield "|---|--:|--:|--:|"
    for name, player in (
        ("by chance", RandomPlayer(0)),
        ("scripted, the shortest way", ScriptedPlayer()),
        ("scripted, with the rupees on its way", ScriptedPlayer(rupees=True)),
    ):
        scores = play(env, player, range(episodes))
        figures.append({"player": name, "episode_length": episode_length, **_means(scores)})
        yield _row(name, scores)


def _means(scores: list[Score]) -> dict[str, Any]:
    found = np.array(scores, float)
    told = zip(Score._fields, found.mean(0), found.min(0), found.max(0), strict=True)
    figures = {name: {"mean": mean, "min": least, "max": most} for name, mean, least, most in told}
    return {"episodes": len(scores), **figures}


def _row(name: str, scores: list[Score]) -> str:
    rewards, steps = (np.array([score[at] for score in scores]) for at in (0, 1))
    won = np.mean([score.won for score in scores])
    return (
        f"| {name} | {rewards.mean():.2f} ({rewards.min():.2f} to {rewards.max():.2f}) "
        f"| {steps.mean():.0f} ({steps.min():.0f} to {steps.max():.0f}) | {won:.0%} |"
    )


def nothing_but(novelty: str) -> dict[str, Any]:
    """Settings with which no event is worth anything."""
    events = RamMap.from_yaml(RAM_MAP).events
    return {"novelty": novelty, "rewards": {event.name: 0.0 for event in events}}


def novelty(figures: Figures, episodes: int) -> Iterator[str]:
    """A table of what new sights each player comes to, and where it has been."""
    yield "| what is new | player | return | rooms | cells | steps | with rooms | with cells |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    players: dict[str, Player] = {
        "waiting beside a crab": WaitingPlayer(),
        "by chance": RandomPlayer(0),
        "scripted, the shortest way": ScriptedPlayer(),
        "scripted, exploring": ExploringPlayer(),
    }
    for kind in ("ram", "screen"):
        env = GameBoyEnv(**nothing_but(kind))
        for name, player in players.items():
            scores = np.array([_explored(env, player, seed) for seed in range(episodes)])
            means = dict(zip(("return", "rooms", "cells", "steps"), scores.mean(0), strict=True))
            alike = {"rooms": _alike(scores, 1), "cells": _alike(scores, 2)}
            figures.append({"novelty": kind, "player": name, **means, "correlation": alike})
            told = " | ".join("–" if one is None else f"{one:.2f}" for one in alike.values())
            shown = f"{means['return']:.1f} | {means['rooms']:.1f} | {means['cells']:.0f}"
            yield f"| `{kind}` | {name} | {shown} | {means['steps']:.0f} | {told} |"


def _explored(env: GameBoyEnv, player: Player, seed: int) -> tuple[float, int, int, int]:
    """The return of an episode, its rooms, its cells and its steps."""
    score = play(env, player, [seed])[0]
    rooms, cells = env.peek("rooms"), env.peek("explored")
    assert isinstance(rooms, int)
    assert isinstance(cells, int)
    return score.reward, rooms.bit_count(), cells, score.num_steps


def _alike(scores: Any, column: int) -> float | None:
    """How returns go with this column (correlation); None where one is always the same."""
    returns, others = scores[:, 0], scores[:, column]
    if not np.ptp(returns) or not np.ptp(others):
        return None
    return float(np.corrcoef(returns, others)[0, 1])


# --- training -------------------------------------------------------------------------------------


def train(figures: Figures, repeats: int) -> Iterator[str]:
    """A table of runs by `make train-20k`, as they tell it themselves."""
    yield "| run | steps/s | episodes/s | seconds | reward (last 10) |"
    yield "|--:|--:|--:|--:|--:|"
    for number in range(repeats):
        told = _trained()
        figures.append({"run": number + 1, **told})
        rate, episodes, seconds, reward = told.values()
        yield f"| {number + 1} | {rate:,.0f} | {episodes:.2f} | {seconds:.1f} | {reward:.2f} |"
    rate = float(np.median([one["steps_per_s"] for one in figures]))
    figures.append({"median_steps_per_s": rate, "claims": CLAIMS})
    yield ""
    yield f"Median {rate:,.0f} steps/s: " + ", ".join(
        f"{rate / claim:.2f} times {claim:,}" for claim in CLAIMS
    )


def _trained() -> dict[str, float]:
    """The figures of one run, in a process and a folder of its own."""
    planned = ["make", "-n", "-o", ".venv/.ready", "train-20k", "ARGS=--eval-episodes 1"]
    done = subprocess.run(planned, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if "train_gameboy.py" in line]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *shlex.split(line)[1:], "--run-dir", folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    told = dict(re.findall(r"^(.+): ([\d.]+)(?: s)?$", done.stdout, re.MULTILINE))
    return {name: float(told[said]) for name, said in CLOSING.items()}


# --- the command ----------------------------------------------------------------------------------


def keep(record: Record, name: str, figures: Figures, folder: Path) -> Path:
    """Write figures with the machine and the command that they are of."""
    record = replace(record, name=name)
    content = json.loads(record.to_json())
    del content["outcomes"]
    text = json.dumps(content | {"figures": rounded(figures)}, indent=1) + "\n"
    return claim(folder, record.stem, text)


def rounded(value: Any) -> Any:
    """Five digits: more are noise."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def main() -> None:
    """Print what was asked for, and keep it."""
    given = parse()
    command = ["python", "-m", "benchmarks.gameboy", *without_folder(sys.argv[1:])]
    names = {
        "many": f"many-{given.backend}",
        "soak": f"soak-{given.backend}",
        "players": f"players-{given.episode_length}",
    }
    name = names.get(given.what, given.what)
    record, figures = begin(command, name), Figures()
    tables: dict[str, Callable[[], Iterator[str]]] = {
        "speed": lambda: speed(figures, given.seconds),
        "backends": lambda: backends(figures, given.rounds),
        "many": lambda: many(figures, given.num_envs or 400, given.backend, given.seconds),
        "soak": lambda: soak(figures, given.num_envs or 16, given.backend, given.minutes),
        "players": lambda: players(figures, given.episodes, given.episode_length),
        "novelty": lambda: novelty(figures, given.episodes),
        "train": lambda: train(figures, given.repeats),
    }
    for line in tables[given.what]():
        print(line, flush=True)
    print(f"\n{keep(record, name, figures, given.out)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=["speed", "backends", "many", "soak", "players", "novelty", "train"])
    add("--seconds", type=float, default=8.0, help="of a measurement (default 8)")
    add("--rounds", type=int, default=40, help="of a comparison of backends (default 40)")
    add("--minutes", type=float, default=30.0, help="of a soak (default 30)")
    add("--num-envs", type=int, help="of many (default 400) and of a soak (default 16)")
    add("--backend", default="process", help="of both (default process)")
    add("--episodes", type=int, default=200, help="of each player (default 200)")
    add("--repeats", type=int, default=3, help="of training (default 3)")
    add("--episode-length", type=int, default=500, help="of players, steps (default 500)")
    add("--out", type=Path, default=RESULTS / "gameboy", help="folder for the figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
