"""Infos: one column per key, and beside it a mask of who has an entry."""

import gymnasium
import numpy as np

import shoal


# --8<-- [start:columns]
class Tells(gymnasium.Env):
    """Says something only now and then."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        info = {"speed": 1.5, "place": np.array([3, 4]), "inner": {"lives": 2}}
        if action == 1:
            info["note"] = "crashed"
        return np.zeros(1, np.float32), 0.0, False, False, info


with shoal.make(Tells, num_envs=3) as envs:
    envs.reset(seed=0)
    *_, infos = envs.step(np.array([0, 1, 0]))

assert infos["speed"].tolist() == [1.5, 1.5, 1.5]  # numbers: a typed array
assert infos["place"].shape == (3, 2)
assert infos["inner"]["lives"].tolist() == [2, 2, 2]
assert infos["note"].tolist() == [None, "crashed", None]  # not a number: an array of objects
assert infos["_note"].tolist() == [False, True, False]
# --8<-- [end:columns]

print("keys:", ", ".join(sorted(infos)))
