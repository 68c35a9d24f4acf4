"""One seed decides everything, wherever the environments run."""

import hashlib

import numpy as np

import shoal
from shoal.seeding import env_seed, evaluation_seed

# --8<-- [start:plus_i]
with shoal.make("CartPole-v1", num_envs=3) as envs:
    observations, _ = envs.reset(seed=7)
    assert envs.np_random_seed == (7, 8, 9)  # env i gets seed + i
    same, _ = envs.reset(seed=[7, 8, 9])  # or one seed each; None leaves a generator as it is
    assert np.array_equal(observations, same)
    row, _ = envs.reset_envs([2], seeds=7)  # a number means seed + env id here too
    assert np.array_equal(row[0], observations[2])
# --8<-- [end:plus_i]

# --8<-- [start:make]
with shoal.make("CartPole-v1", num_envs=3, seed=7) as envs:
    assert np.array_equal(envs.reset()[0], observations)  # the first reset uses it
    assert not np.array_equal(envs.reset()[0], observations)  # the generators have moved on
# --8<-- [end:make]


# --8<-- [start:everywhere]
def fingerprint(**where):
    """A hash of everything that 200 steps return, several episodes long."""
    digest = hashlib.sha256()
    with shoal.make("CartPole-v1", num_envs=5, **where) as envs:
        envs.action_space.seed(1)
        digest.update(envs.reset(seed=7)[0].tobytes())
        for _ in range(200):
            for array in envs.step(envs.action_space.sample())[:4]:
                digest.update(array.tobytes())
    return digest.hexdigest()


places = [
    {"backend": "serial"},
    {"backend": "thread", "num_workers": 2},
    {"backend": "process", "num_workers": 1},
    {"backend": "process", "num_workers": 3},
    {"backend": "process", "start_method": "spawn"},
]
assert len({fingerprint(**where) for where in places}) == 1
# --8<-- [end:everywhere]

# --8<-- [start:functions]
training = [env_seed(7, env_id) for env_id in range(1024)]
restarted = [env_seed(7, env_id, restart=1) for env_id in range(1024)]
evaluation = [evaluation_seed(7, env_id) for env_id in range(1024)]
assert training[:3] == [7, 8, 9]
assert len({*training, *restarted, *evaluation}) == 3 * 1024
# --8<-- [end:functions]

print(f"{len(places)} ways to run, one trajectory")
