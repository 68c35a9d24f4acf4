"""Options of its own for each environment: now, or at its next automatic reset."""

import gymnasium
import numpy as np

import shoal


# --8<-- [start:world]
class Corridor(gymnasium.Env):
    """Walk right until the goal. Where the goal is, is the task."""

    observation_space = gymnasium.spaces.Box(0, 100, (2,), np.int64)  # position, goal
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position, self.goal = 0, (options or {}).get("goal", 3)
        return self.observe(), {}

    def step(self, action):
        self.position += int(action)
        return self.observe(), 0.0, self.position >= self.goal, False, {}

    def observe(self):
        return np.array([self.position, self.goal])


# --8<-- [end:world]

RIGHT = np.ones(3, dtype=np.int64)

# --8<-- [start:now]
envs = shoal.make(Corridor, num_envs=3)
observations, _ = envs.reset(options=[{"goal": 4}, None, {"goal": 9}])  # one dict per env
assert observations[:, 1].tolist() == [4, 3, 9]

observations, _ = envs.reset_envs([2, 0], seeds=[11, 12], options=[{"goal": 5}, {"goal": 6}])
assert observations[:, 1].tolist() == [5, 6]  # in the order given: env 2, then env 0
# --8<-- [end:now]

# --8<-- [start:next]
envs.reset(options={"goal": 2})  # one dict for all
envs.set_next_reset([0, 2], options=[{"goal": 7}, {"goal": 8}])
envs.step(RIGHT)
_, _, terminations, _, _ = envs.step(RIGHT)
assert terminations.all()  # every goal was at 2

observations, *_ = envs.step(RIGHT)  # the step that resets
assert observations[:, 1].tolist() == [7, 3, 8]  # env 1 had nothing planned: its default
# --8<-- [end:next]

# --8<-- [start:mask]
mask = np.array([False, True, False])
observations, _ = envs.reset(options={"reset_mask": mask, "goal": 1})
assert observations[:, 1].tolist() == [7, 1, 8]  # the others: their latest observation
# --8<-- [end:mask]

envs.close()
print("tasks of the last episodes:", observations[:, 1])
