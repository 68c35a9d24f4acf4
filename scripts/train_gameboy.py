"""Trains with PPO on a Game Boy game: `shoal train ppo`, with flags for the game itself.

    python scripts/train_gameboy.py --n-envs 2 --total-steps 100000
    python scripts/train_gameboy.py --rom my.gb --ram-map my.yaml --run-dir runs

Everything else is said as to `shoal train ppo`, over what `configs/gameboy.yaml` says.
"""

import argparse
import sys
from pathlib import Path

from shoal.cli import main

CONFIG = Path(__file__).parents[1] / "configs" / "gameboy.yaml"


def parse(arguments):
    """What is said of the game, and the rest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--rom", metavar="PATH", help="a cartridge of your own (default: Tidekeep)")
    add("--ram-map", metavar="PATH", help="its RAM map; without one new pictures are rewarded")
    add(
        "--observation",
        choices=["ram", "pixels", "both"],
        help="what is seen (default: ram, or pixels where there is no RAM map)",
    )
    add("--frames-per-step", type=int, default=4, help="default 4")
    add("--episode-length", type=int, default=500, help="steps (default 500)")
    return parser.parse_known_args(arguments)


def settings_of(game):
    """The same as settings of the environment."""
    has_map = game.rom is None or game.ram_map is not None
    chosen = {**vars(game), "observation": game.observation or ("ram" if has_map else "pixels")}
    return [f"{name}={value!r}" for name, value in chosen.items() if value is not None]


game, rest = parse(sys.argv[1:])
told = ["--config", str(CONFIG), "--env-kwargs", *settings_of(game)]
sys.exit(main(["train", "ppo", *told, *rest]))
