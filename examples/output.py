"""What workers print and log reaches the caller's terminal and loggers."""

import logging
import sys

import gymnasium
import numpy as np

import shoal

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s: %(message)s")


# --8<-- [start:world]
class Chatty(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("a printed line")
        logging.getLogger("chatty").info("a logged line")
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 0.0, False, False, {}


with shoal.make(Chatty, num_envs=1, backend="process") as envs:
    envs.reset(seed=0)
# --8<-- [end:world]

print("heard")
