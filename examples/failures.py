"""What goes wrong in a worker comes back as an error that says what and where."""

import numpy as np

import shoal
from shoal.testing import CountingWorld, Saboteur


def one_bad(how):
    """Three sound environments and one that fails in its second step."""
    return [CountingWorld, CountingWorld, lambda: Saboteur(how, at_step=2), CountingWorld]


STILL = np.zeros(4, dtype=int)

# --8<-- [start:raised]
with shoal.make(one_bad("raise"), backend="process", num_workers=2) as envs:
    envs.reset(seed=0)
    envs.step(STILL)
    try:
        envs.step(STILL)
    except shoal.EnvRaised as error:
        print(f"EnvRaised: {error}")
        print("where:", error.worker, error.env_ids, error.phase)
        print("cause:", repr(error.__cause__))  # the environment's own exception
    envs.reset_envs([2])  # its worker lives, and so do all others
    envs.step(STILL)
# --8<-- [end:raised]

# --8<-- [start:died]
with shoal.make(one_bad("sigkill"), backend="process", num_workers=2, on_failure="raise") as envs:
    envs.reset(seed=0)
    envs.step(STILL)
    try:
        envs.step(STILL)
    except shoal.WorkerDied as error:
        print(f"WorkerDied: {error}")
        print("where:", error.worker, error.env_ids, error.phase)
# --8<-- [end:died]

# --8<-- [start:hung]
settings = {"num_workers": 2, "step_timeout_s": 1.0, "on_failure": "raise"}
with shoal.make(one_bad("hang_sleep"), **settings) as envs:
    envs.reset(seed=0)
    envs.step(STILL)
    try:
        envs.step(STILL)
    except shoal.WorkerTimeout as error:
        print("WorkerTimeout:", error.worker, error.env_ids, error.phase)
# --8<-- [end:hung]

print("raised, died, hung: three errors, no hang")
