"""A pytest plugin: replaces one of Stable-Baselines3's vector environments by the drop-in for it.

Used by `make sb3-tests SB3=<a checkout of Stable-Baselines3>` to run its own tests on Shoal:
`SHOAL_DROP_IN=SubprocVecEnv pytest -p sb3_dropins tests/test_vec_envs.py`. Without the variable
nothing is replaced, which gives the figures to compare with.
"""

import os
import sys

import stable_baselines3  # all that imports the original by name must have done so

import shoal.vector.sb3

name = os.environ.get("SHOAL_DROP_IN", "")
if name:
    original = getattr(stable_baselines3.common.vec_env, name)
    drop_in = getattr(shoal.vector.sb3, name)
    for module in list(sys.modules.values()):
        is_theirs = module.__name__.startswith("stable_baselines3")
        if is_theirs and getattr(module, name, None) is original:
            setattr(module, name, drop_in)


def pytest_report_header() -> str:
    return f"vector environments replaced by Shoal's: {name or 'none'}"
