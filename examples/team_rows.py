"""A team learns with Stable-Baselines3: each agent of each environment is a row."""

# ruff: noqa: E402

import torch

torch.set_num_threads(1)  # a network this small is no quicker with more

# --8<-- [start:program]
from stable_baselines3 import PPO

import shoal
from shoal.vector.sb3 import TeamVecEnv

team = shoal.make_team("mpe2.simple_spread_v3:parallel_env", num_envs=4, autoreset="same_step")
rows = TeamVecEnv(team)  # four environments, three agents each
model = PPO("MlpPolicy", rows, n_steps=32, batch_size=64, seed=0, device="cpu")
model.learn(500)
rows.close()
# --8<-- [end:program]

print(f"{model.num_timesteps} steps of {rows.num_envs} rows")
