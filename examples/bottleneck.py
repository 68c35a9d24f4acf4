"""What holds a pool back, as it tells itself: its environments, the transport, or the caller."""

import time
from functools import partial

import shoal
from shoal.testing import CountingWorld


def run(envs, policy_s=0.0):
    """Step for a while, with a policy that takes so long."""
    with envs:
        envs.reset(seed=0)
        for _ in range(200):
            until = time.perf_counter() + policy_s
            while time.perf_counter() < until:
                pass
            envs.step(envs.action_space.sample())
        # --8<-- [start:ask]
        print(envs.stats()["bottleneck"])
        # --8<-- [end:ask]
        return envs.stats()["bottleneck"].partition(":")[0]


slow = partial(CountingWorld, work_s=1e-3)
found = [
    run(shoal.make(slow, 4, backend="process", num_workers=2)),
    run(shoal.make(CountingWorld, 4, backend="process", num_workers=2)),
    run(shoal.make(CountingWorld, 4, backend="serial"), policy_s=1e-3),
]
print(len(found), "pools asked")
