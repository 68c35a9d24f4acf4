"""Code written for gymnasium.vector.AsyncVectorEnv, with one line changed."""

import gymnasium

# --8<-- [start:program]
# from gymnasium.vector import AsyncVectorEnv
from shoal.vector.gym import AsyncVectorEnv

envs = AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(6)])
observations, infos = envs.reset(seed=42)
envs.action_space.seed(42)
for _ in range(50):
    envs.step_async(envs.action_space.sample())
    observations, rewards, terminations, truncations, infos = envs.step_wait(timeout=60)
envs.close()
# --8<-- [end:program]

# --8<-- [start:extras]
with AsyncVectorEnv(
    [lambda: gymnasium.make("CartPole-v1") for _ in range(6)], num_workers=2
) as envs:
    envs.reset(seed=42)
    assert envs.stats()["num_workers"] == 2  # six environments in two processes
    observations, _ = envs.reset_envs([4], options=[{"low": -0.01, "high": 0.01}])
# --8<-- [end:extras]

print(f"{type(envs).__module__}.{type(envs).__name__}")
