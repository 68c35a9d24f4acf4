"""A vector environment inside each worker counts as several environments."""

# --8<-- [start:batched]
import gymnasium
from gymnasium.vector import AutoresetMode

import shoal


def four_at_once():
    """Stands for a simulator that steps a batch in one call."""
    return gymnasium.vector.SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * 4, autoreset_mode=AutoresetMode.SAME_STEP
    )


with shoal.make(four_at_once, num_envs=8, num_workers=2, autoreset="same_step") as envs:
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (8, 4)
    for _ in range(50):
        *_, infos = envs.step(envs.action_space.sample())
# --8<-- [end:batched]

print(f"{envs.num_envs} environments, four to a simulator")
