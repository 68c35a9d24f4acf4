"""Large read-only data: once in shared memory, not once per environment."""

# --8<-- [start:data]
import gymnasium
import numpy as np

import shoal


class Replays(gymnasium.Env):
    """Walks through a table of recorded prices."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, prices):
        self.prices = prices
        self.observation_space = gymnasium.spaces.Box(0, np.inf, prices.shape[1:], prices.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.day = int(self.np_random.integers(len(self.prices) - 1))
        return self.prices[self.day], {}

    def step(self, action):
        self.day += 1
        return self.prices[self.day], 0.0, False, self.day == len(self.prices) - 1, {}

    def may_write(self):
        return self.prices.flags.writeable


prices = np.random.default_rng(0).random((500_000, 4))

with shoal.make(Replays, num_envs=8, env_kwargs={"prices": prices}, backend="process") as envs:
    observations, _ = envs.reset(seed=0)
    assert not any(envs.call("may_write"))  # a view of what all workers share
# --8<-- [end:data]

assert all((row == prices).all(axis=1).any() for row in observations)
print(f"{prices.nbytes / 2**20:.0f} MiB, shared by {envs.num_envs} environments")
