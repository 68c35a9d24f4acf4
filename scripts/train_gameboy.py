"""Trains with PPO on a Game Boy game: `shoal train ppo`, with flags for the game itself.

    python scripts/train_gameboy.py --n-envs 2 --total-steps 100000
    python scripts/train_gameboy.py --rom my.gb --ram-map my.yaml --run-dir runs
    python scripts/train_gameboy.py --env-kwargs press_frames=2 "rewards={'damage': -1}"

Everything else is said as to `shoal train ppo`, over what `configs/gameboy.yaml` says. What is said
of the game is put over the file's `env_kwargs` name by name, flags of their own last.
"""

import argparse
import sys
from pathlib import Path

from shoal.cli import main
from shoal.errors import ConfigError
from shoal.training.settings import document

CONFIG = Path(__file__).parents[1] / "configs" / "gameboy.yaml"
OF_THE_GAME = ("rom", "ram_map", "observation", "frames_per_step", "episode_length")


def parse(arguments):
    """What is said of the game, and the rest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--config", metavar="FILE", default=str(CONFIG), help="default: configs/gameboy.yaml")
    add("--rom", metavar="PATH", help="a cartridge of your own (default: Tidekeep)")
    add("--ram-map", metavar="PATH", help="its RAM map; without one new screens are rewarded")
    add(
        "--observation",
        choices=["ram", "pixels", "both"],
        help="what is seen (default: as the file says; pixels where there is no RAM map)",
    )
    add("--frames-per-step", type=int, metavar="N", help="default: as the file says")
    add("--episode-length", type=int, metavar="N", help="steps (default: as the file says)")
    add(
        "--env-kwargs",
        nargs="*",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="any setting of GameBoyEnv: rewards, novelty, press_frames, state, ...",
    )
    return parser.parse_known_args(arguments)


def settings_of(game):
    """The environment's settings as words: the file's, `--env-kwargs`, flags of their own."""
    words = {name: f"{name}={value!r}" for name, value in in_file(game.config).items()}
    if game.rom is not None and game.ram_map is None:
        words["observation"] = "observation='pixels'"
    words |= {word.partition("=")[0]: word for word in game.env_kwargs}
    told = {name: getattr(game, name) for name in OF_THE_GAME}
    words |= {name: f"{name}={value!r}" for name, value in told.items() if value is not None}
    return list(words.values())


def in_file(path):
    """The file's `env_kwargs`; what is wrong with the file, the command itself tells."""
    try:
        content = document.read(Path(path)).content
    except ConfigError:
        return {}
    group = content.get("envs")
    found = content.get("env_kwargs") or (isinstance(group, dict) and group.get("env_kwargs"))
    return found if isinstance(found, dict) else {}


game, rest = parse(sys.argv[1:])
told = ["--config", game.config, "--env-kwargs", *settings_of(game)]
sys.exit(main(["train", "ppo", *told, *rest]))
