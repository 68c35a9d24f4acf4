"""All of these need PyBoy."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("pyboy") else ["test_*.py"]
