"""More environments, fewer environments, other workers: while they run."""

import numpy as np

import shoal

# --8<-- [start:grow]
envs = shoal.make("CartPole-v1", 2, backend="process", num_workers=1)
envs.reset(seed=7)
envs.step(np.zeros(2, dtype=int))

observations, infos = envs.resize(num_envs=6, num_workers=2)
assert len(observations) == 4  # envs 2 to 5 are new and have been reset; 0 and 1 just go on
assert envs.np_random_seed == (7, 8, 9, 10, 11, 12)  # as if they had been there from the start
envs.step(np.zeros(6, dtype=int))
# --8<-- [end:grow]

# --8<-- [start:shrink]
envs.resize(num_envs=3)  # envs 3 to 5 are closed
observations, *_ = envs.step(np.zeros(3, dtype=int))
# --8<-- [end:shrink]
assert envs.num_envs == len(observations) == envs.action_space.shape[0] == 3

# --8<-- [start:same]
with shoal.make("CartPole-v1", 2) as others:
    others.reset(seed=7)
    for _ in range(3):
        undisturbed, *_ = others.step(np.zeros(2, dtype=int))
assert np.array_equal(observations[:2], undisturbed)  # nobody noticed anything
# --8<-- [end:same]

envs.close()
print("2, 6 and 3 environments, and the first two kept their episodes")
