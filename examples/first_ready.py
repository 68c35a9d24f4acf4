"""Stepping whoever is ready: `send` and `recv`, for environments of uneven speed."""

import time

import numpy as np

import shoal
from shoal.testing import CountingWorld


class Uneven(CountingWorld):
    """Takes a hundredth of a second longer for each number of its tag."""

    def step(self, action):
        time.sleep(0.01 * self.tag)
        return super().step(action)


# --8<-- [start:loop]
factories = [lambda tag=tag: Uneven(tag) for tag in range(6)]
envs = shoal.make(factories, batch_size=2, num_workers=6)
envs.reset(seed=0)

steps = np.zeros(envs.num_envs, dtype=int)
envs.send(np.zeros(envs.num_envs, dtype=int))  # everyone gets a first action
while steps.sum() < 100:
    batch = envs.recv()  # at least batch_size environments, whoever is ready
    steps[batch.env_ids] += 1
    actions = np.zeros(len(batch.env_ids), dtype=int)  # row k is of environment env_ids[k]
    envs.send(actions, batch.env_ids)
# --8<-- [end:loop]

assert steps[0] > steps[5] > 0  # the quick ones were not held up, the slow ones not forgotten

# --8<-- [start:rest]
try:
    envs.recv(min_envs=6, timeout_s=0.001)
except TimeoutError as too_early:
    print(too_early)  # nothing is lost

batch = envs.recv(min_envs=6)  # wait for all that are outstanding
assert batch.env_ids.tolist() == [0, 1, 2, 3, 4, 5]
observations, *_ = envs.step(np.zeros(6, dtype=int))  # now lock-step is possible again
# --8<-- [end:rest]

# --8<-- [start:misuse]
try:
    envs.recv()
except shoal.ContractError as misuse:
    print(misuse)  # and nothing has changed
# --8<-- [end:misuse]

envs.close()
print("the quickest environment went ahead:", bool(steps[0] > steps[5]))
