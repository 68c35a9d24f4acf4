"""Trains the two agents of MPE's simple push, each with a policy of its own, against each other.

The same as `shoal train ppo --config configs/simple_push.yaml`, and takes the same arguments.
"""

import sys
from pathlib import Path

from shoal.cli import main

CONFIG = Path(__file__).parent.parent / "configs" / "simple_push.yaml"

sys.exit(main(["train", "ppo", "--config", str(CONFIG), *sys.argv[1:]]))
