"""Structured observations stay structured; what has no row travels beside the rows."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Text

import shoal


# --8<-- [start:mixed]
class Robot(gymnasium.Env):
    observation_space = Dict(
        {
            "camera": Box(0, 255, (8, 8), np.uint8),
            "battery": Box(0, 1, (), np.float16),
            "command": Text(20),
        }
    )
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.battery = np.float16(1)
        return self.observe(), {}

    def step(self, action):
        self.battery = np.float16(self.battery - 0.25)
        return self.observe(), 0.0, False, False, {}

    def observe(self):
        camera = self.np_random.integers(0, 256, (8, 8), dtype=np.uint8)
        return {"camera": camera, "battery": self.battery, "command": "home"}


with shoal.make(Robot, num_envs=3) as envs:
    observations, _ = envs.reset(seed=0)
    assert observations["camera"].shape == (3, 8, 8)  # an array leaf: rows, in its own dtype
    assert observations["battery"].dtype == np.float16
    assert observations["command"] == ("home",) * 3  # an object leaf: a tuple
    assert observations in envs.observation_space
# --8<-- [end:mixed]


# --8<-- [start:wrong]
class Broken(Robot):
    def observe(self):
        return super().observe() | {"camera": np.zeros((8, 9), np.uint8)}


envs = shoal.make(Broken, num_envs=3, backend="serial")
try:
    envs.reset(seed=0)
except shoal.ContractError as error:
    print(error)
# --8<-- [end:wrong]

print("one dict, two rows and a tuple")
