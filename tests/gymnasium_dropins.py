"""A pytest plugin: replaces one of Gymnasium's vector environments by the drop-in for it.

Used by `make gym-tests GYMNASIUM=<a checkout of Gymnasium>` to run Gymnasium's own tests on Shoal:
`SHOAL_DROP_IN=AsyncVectorEnv pytest -p gymnasium_dropins tests/vector`. Without the variable
nothing is replaced, which gives the figures to compare with.
"""

import os

import gymnasium
import gymnasium.vector

import shoal.vector.gym

name = os.environ.get("SHOAL_DROP_IN", "")
if name:
    drop_in = getattr(shoal.vector.gym, name)
    setattr(gymnasium.vector, name, drop_in)


def pytest_report_header() -> str:
    return f"vector environments replaced by Shoal's: {name or 'none'}"
