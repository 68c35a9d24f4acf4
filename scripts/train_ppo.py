"""Trains with PPO: the same as `shoal train ppo`, with the same arguments."""

import sys

from shoal.cli import main

sys.exit(main(["train", "ppo", *sys.argv[1:]]))
