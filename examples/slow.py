"""An environment that keeps others waiting gets a worker of its own."""

import os
import time

import numpy as np

import shoal
from shoal.testing import CountingWorld


# --8<-- [start:world]
class Uneven(CountingWorld):
    """If it is number 0, a step takes 20 ms. Episodes have 3 to 20 steps."""

    def step(self, action):
        time.sleep(0.02 if self.tag == 0 else 0.0)
        return super().step(action)

    @property
    def pid(self):
        return os.getpid()


# --8<-- [end:world]

# --8<-- [start:loop]
factories = [lambda tag=tag: Uneven(tag) for tag in range(4)]
envs = shoal.make(factories, num_workers=2, batch_size=1)
envs.reset(seed=0)
pids = envs.get_attr("pid")
print("env 0 is alone:", pids.count(pids[0]) == 1)

steps = np.zeros(4, dtype=int)
envs.send(np.zeros(4, dtype=int))
while steps[0] < 40:
    batch = envs.recv()
    steps[batch.env_ids] += 1
    envs.send(np.zeros(len(batch.env_ids), dtype=int), batch.env_ids)

envs.recv(min_envs=4)
pids = envs.get_attr("pid")
print("env 0 is alone:", pids.count(pids[0]) == 1)
# --8<-- [end:loop]
envs.close()
print("the slow one has moved out")
