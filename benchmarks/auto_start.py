"""What the probe of `backend="auto"` costs at the start, in fresh interpreters, in turn.

    python -m benchmarks.auto_start [--env CartPole-v1] [--n-envs 8] [--rounds 10]

From the call of `make` to the end of the first reset: with the backend named that auto chooses,
with auto that has to measure, and with auto that has measured before. The lowest and the median of
all rounds; others who use the machine only ever make it slower.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

PROGRAM = """
import json, sys, time, shoal
env, num_envs, backend = sys.argv[1:]
begun = time.perf_counter()
with shoal.make(env, int(num_envs), backend=backend) as envs:
    envs.reset(seed=0)
    print(json.dumps([time.perf_counter() - begun, envs.stats()["backend"]]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auto_start")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--n-envs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _, chosen = start(given, "auto", folder)  # which also fills the cache
        cases = {
            f"{chosen}, named": (chosen, None),
            "auto, measuring": ("auto", None),
            "auto, measured before": ("auto", folder),
        }
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(given.rounds):
            for name, (backend, cache) in cases.items():
                times[name].append(start(given, backend, cache)[0])
    print(f"{given.n_envs} × {given.env}, {given.rounds} rounds: lowest and median")
    for name, found in times.items():
        print(f"  {name:<24}{min(found):6.3f} s {statistics.median(found):6.3f} s")


def start(given: argparse.Namespace, backend: str, cache: str | None) -> tuple[float, str]:
    """Seconds, and the backend that it came to; without a cache everything is measured."""
    variables = {"SHOAL_CACHE": "off"} if cache is None else {"XDG_CACHE_HOME": cache}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given.env, str(given.n_envs), backend],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    taken_s, name = json.loads(done.stdout)
    return taken_s, name


if __name__ == "__main__":
    main()
