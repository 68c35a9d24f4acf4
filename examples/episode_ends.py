"""What a step returns where an episode ends, in each of the three modes."""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

import shoal


# --8<-- [start:world]
class TwoSteps(gymnasium.Env):
    """Every episode has two steps; the observation is 10 * episode + step."""

    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)
    first = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.now, self.first = self.first, self.first + 10
        return self.now, {"at": self.now}

    def step(self, action):
        self.now += 1
        return self.now, 1.0, self.now % 10 == 2, False, {"at": self.now}


# --8<-- [end:world]


# --8<-- [start:table]
def show(mode):
    print(f"{mode:<10} observation  reward  terminated  info")
    envs = shoal.make(TwoSteps, num_envs=1, autoreset=mode)
    observation, info = envs.reset(seed=0)
    print(f"{'reset':<10} {observation[0]:>11} {'':>7} {'':>11}  at {info['at'][0]}")
    for number in range(1, 5):
        observation, reward, terminated, _, info = envs.step(np.array([1]))
        text = f"at {info['at'][0]}"
        if "final_obs" in info:
            last, last_info = info["final_obs"][0], info["final_info"]["at"][0]
            text += f", final_obs {last}, final_info at {last_info}"
        print(f"step {number:<5} {observation[0]:>11} {reward[0]:>7} {terminated[0]!s:>11}  {text}")
        if mode == "disabled" and terminated[0]:
            observation, info = envs.reset(options={"reset_mask": terminated})
            print(f"{'reset':<10} {observation[0]:>11} {'':>7} {'':>11}  at {info['at'][0]}")
    envs.close()


for mode in ("next_step", "same_step", "disabled"):
    show(mode)
    print()
# --8<-- [end:table]


# --8<-- [start:final]
def true_next_observations(observations, infos):
    """What each action really led to, as a value estimate needs it (same_step)."""
    following = observations.copy()
    if "final_obs" in infos:
        for env_id in np.flatnonzero(infos["_final_obs"]):
            following[env_id] = infos["final_obs"][env_id]
    return following


with shoal.make(TwoSteps, num_envs=3, autoreset="same_step") as envs:
    envs.reset(seed=0)
    envs.step(np.zeros(3, dtype=int))
    observations, _, terminations, _, infos = envs.step(np.zeros(3, dtype=int))
    assert terminations.all()
    assert observations.tolist() == [10, 10, 10]  # the next episodes have begun
    assert true_next_observations(observations, infos).tolist() == [2, 2, 2]
# --8<-- [end:final]


# --8<-- [start:reuse]
class Reuses(gymnasium.Env):
    """Hands out one and the same array for ever: common in emulators and simulators."""

    observation_space = gymnasium.spaces.Box(0, 100, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.screen = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.screen[:] = 0
        return self.screen, {}

    def step(self, action):
        self.screen += 1
        return self.screen, 1.0, bool(self.screen[0] == 2), False, {}


with shoal.make(Reuses, num_envs=2, autoreset="same_step") as envs:
    envs.reset(seed=0)
    envs.step(np.zeros(2, dtype=int))
    *_, infos = envs.step(np.zeros(2, dtype=int))
    assert [float(last[0]) for last in infos["final_obs"]] == [2.0, 2.0]
# --8<-- [end:reuse]

theirs = gymnasium.vector.SyncVectorEnv([Reuses] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
theirs.reset(seed=0)
theirs.step(np.zeros(2, dtype=int))
*_, infos = theirs.step(np.zeros(2, dtype=int))
assert [float(last[0]) for last in infos["final_obs"]] == [0.0, 0.0]  # the reset overwrote it

# --8<-- [start:statistics]
with shoal.make(TwoSteps, num_envs=3, autoreset="same_step") as envs:
    envs.reset(seed=0)
    for _ in range(4):
        envs.step(np.zeros(3, dtype=int))
    stats = envs.stats()
assert stats["episodes"] == 6
assert stats["episode_returns"] == [2.0] * 6
assert stats["episode_lengths"] == [2] * 6
# --8<-- [end:statistics]

print("an overwritten buffer does not reach final_obs")
