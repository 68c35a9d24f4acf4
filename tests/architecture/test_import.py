"""Is `import shoal` light, quiet and free of side effects? Asked of fresh interpreters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
OPTIONAL = [
    "Box2D",
    "agilerl",
    "matplotlib",
    "mujoco",
    "pettingzoo",
    "pyboy",
    "ray",
    "rich",
    "stable_baselines3",
    "tensorboard",
    "torch",
    "tyro",
    "wandb",
    "yaml",
]


def ask(program: str) -> Any:
    """What a fresh interpreter says (as JSON) that runs this program, bytecode cached as usual."""
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**env, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


WATCH_IMPORTS = """
import json, sys
import gymnasium  # what it tries by itself is its own affair

class Watch:
    tried = []
    def find_spec(self, name, path=None, target=None):
        self.tried.append(name)

sys.meta_path.insert(0, Watch())
import {module}
print(json.dumps(Watch.tried))
"""


@pytest.mark.parametrize("module", ["shoal", "shoal.testing"])
def test_no_optional_package_is_even_looked_for(module: str) -> None:
    tried = ask(WATCH_IMPORTS.format(module=module))
    assert "shoal" in tried, "the watch must see imports"
    assert {name.split(".")[0] for name in tried} & set(OPTIONAL) == set()


def test_only_the_core_packages_are_loaded() -> None:
    loaded = ask(
        "import sys; before = set(sys.modules)\n"
        "import gymnasium, numpy, cloudpickle; core = set(sys.modules)\n"
        "import shoal, json\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - core}\n"
        "print(json.dumps(sorted(new - set(sys.stdlib_module_names))))"
    )
    assert loaded == ["shoal"]


WATCH_WORLD = """
import sys, json, gymnasium, logging, os, signal, threading, warnings

def world():
    return {
        "environ": dict(os.environ),
        "cwd": os.getcwd(),
        "path": list(sys.path),
        "threads": threading.active_count(),
        "filters": len(warnings.filters),
        "handlers": [repr(logging.root.handlers), repr(logging.getLogger("shoal").handlers)],
        "levels": [logging.root.level, logging.getLogger("shoal").level],
        "signals": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "hooks": [repr(sys.excepthook), repr(threading.excepthook)],
        "files": len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0,
    }

STARTS = ("os.fork", "os.posix_spawn", "os.system", "subprocess.Popen", "socket.__new__",
          "_thread.start_new_thread", "tempfile.mkstemp", "os.putenv")
heard = []
sys.addaudithook(lambda event, args: heard.append(event) if event in STARTS else None)
before = world()
heard.clear()
import shoal
heard_then = list(heard)
after = world()
changed = [key for key in before if before[key] != after[key]]
print(json.dumps({"heard": heard_then, "changed": changed, "threads": after["threads"]}))
"""


def test_it_starts_nothing_and_changes_nothing() -> None:
    assert ask(WATCH_WORLD) == {"heard": [], "changed": [], "threads": 1}


def test_the_engine_for_processes_is_loaded_only_by_who_uses_it() -> None:
    program = "import shoal, sys, json; print(json.dumps([n for n in sys.modules if 'shoal' in n]))"
    assert not [name for name in ask(program) if "process" in name or "server" in name]


CLOCK = """
import time, json
begun = time.process_time(); import gymnasium
middle = time.process_time(); import shoal
print(json.dumps([middle - begun, time.process_time() - middle]))
"""


def test_it_takes_no_longer_than_gymnasium_and_a_tenth() -> None:
    """Processor time of both imports in the same interpreter, the best of several.

    No absolute time is asserted: only what Shoal adds, as a share of what Gymnasium takes.
    """
    ask(CLOCK)  # caches bytecode
    pairs = [ask(CLOCK) for _ in range(9)]
    gymnasium_s, extra_s = (min(times) for times in zip(*pairs, strict=True))
    assert extra_s <= 0.1 * gymnasium_s, f"shoal adds {extra_s / gymnasium_s:.0%}"
