"""Two checkers that explain what they find: of one environment, and of a vector of them."""

# --8<-- [start:env]
import gymnasium
import numpy as np

import shoal
from shoal.testing import check_env, check_vector_env


class Careless(gymnasium.Env):
    """Breaks its own promises in two places."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}  # forgets super().reset(seed=seed)

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, True, {}  # three numbers instead of two


report = check_env(Careless)
print(report)
assert not report.ok
# --8<-- [end:env]

# --8<-- [start:vector]
with shoal.make("CartPole-v1", num_envs=3, autoreset="same_step") as envs:
    report = check_vector_env(envs)
assert report.ok, report
# --8<-- [end:vector]

print(report)
