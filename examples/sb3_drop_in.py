"""Code written for Stable-Baselines3's SubprocVecEnv, with one line changed."""

# ruff: noqa: E402

import os

import torch

torch.set_num_threads(1)  # a network this small is no quicker with more

# --8<-- [start:program]
import gymnasium
from stable_baselines3 import PPO

# from stable_baselines3.common.vec_env import SubprocVecEnv
from shoal.vector.sb3 import SubprocVecEnv

envs = SubprocVecEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(6)])
model = PPO("MlpPolicy", envs, n_steps=32, batch_size=64, seed=0, device="cpu")
model.learn(500)
envs.close()
# --8<-- [end:program]

# --8<-- [start:make]
from stable_baselines3.common.env_util import make_vec_env

envs = make_vec_env(
    "CartPole-v1",
    n_envs=6,
    seed=0,
    vec_env_cls=SubprocVecEnv,
    vec_env_kwargs={"num_workers": 2},  # six environments in two processes
)
# --8<-- [end:make]
assert envs.stats()["num_workers"] == 2
envs.close()


# --8<-- [start:death]
class Fragile(gymnasium.Wrapper):
    """Its process dies in the third step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            os._exit(1)
        return super().step(action)


def sound():
    return gymnasium.make("CartPole-v1")


envs = SubprocVecEnv([sound, lambda: Fragile(sound())], num_workers=2, on_failure="restart")
envs.seed(0)
envs.reset()
for _ in range(3):
    observations, rewards, dones, infos = envs.step([0, 1])
    print(dones, [info["TimeLimit.truncated"] for info in infos])
print(infos[1]["restarted"], infos[1]["terminal_observation"].shape)
# --8<-- [end:death]
envs.close()

print(f"{model.num_timesteps} steps on {type(envs).__module__}.{type(envs).__name__}")
