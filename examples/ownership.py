"""Whose arrays they are: yours with copy=True, views of shared rows with copy=False."""

import numpy as np

import shoal

STILL = np.zeros(4, dtype=int)

# --8<-- [start:copies]
with shoal.make("CartPole-v1", num_envs=4) as envs:  # copy=True
    history = [envs.reset(seed=0)[0]]
    for _ in range(5):
        history.append(envs.step(STILL)[0])
    assert len({array.tobytes() for array in history}) == 6  # each stays as it was
# --8<-- [end:copies]

# --8<-- [start:views]
with shoal.make("CartPole-v1", num_envs=4, copy=False) as envs:
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    second = envs.step(STILL)[0]
    assert np.array_equal(first, kept)  # still valid: the step wrote elsewhere
    third = envs.step(STILL)[0]
    assert np.shares_memory(first, third)  # the second step after it reused its place
    assert not np.array_equal(first, kept)
# --8<-- [end:views]

# --8<-- [start:loop]
with shoal.make("CartPole-v1", num_envs=4, copy=False, autoreset="same_step") as envs:
    stored = np.empty((10, 2, 4, 4), np.float32)  # time, before or after, env, observation
    observations, _ = envs.reset(seed=0)
    for time in range(10):
        following, *_ = envs.step(STILL)
        stored[time, 0], stored[time, 1] = observations, following  # both are valid here
        observations = following
# --8<-- [end:loop]

assert np.array_equal(stored[1:, 0], stored[:-1, 1])
print("views are valid for one further step")
