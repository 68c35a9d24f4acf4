"""What may be called an environment: ids, classes, lambdas, closures, lists; and wrappers."""

import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
from gymnasium.wrappers import TimeLimit, TransformReward

import shoal

# --8<-- [start:kinds]
gravity = 12.0


def pendulum_on(planet_gravity):
    return lambda: gymnasium.make("Pendulum-v1", g=planet_gravity)


planets = [pendulum_on(g) for g in (3.7, 9.8, 24.8)]

for env in (
    "Pendulum-v1",  # a Gymnasium id
    "gymnasium.envs.classic_control:PendulumEnv",  # "module:factory"
    PendulumEnv,  # a class
    lambda: gymnasium.make("Pendulum-v1", g=gravity),  # a factory, here one of this script
):
    with shoal.make(env, num_envs=3) as envs:
        assert envs.reset(seed=0)[0].shape == (3, 3)

with shoal.make(planets) as envs:  # a list: one environment per factory
    envs.reset(seed=0)
    assert envs.get_attr("g") == (3.7, 9.8, 24.8)
# --8<-- [end:kinds]

# --8<-- [start:wrappers]
with shoal.make(
    "Pendulum-v1",
    num_envs=3,
    env_kwargs={"g": gravity},
    wrappers=[
        lambda env: TransformReward(env, lambda reward: reward / 10),
        lambda env: TimeLimit(env, max_episode_steps=20),
    ],
) as envs:
    envs.reset(seed=0)
    for _ in range(20):
        _, rewards, _, truncations, _ = envs.step(envs.action_space.sample())
    assert truncations.all()  # the last wrapper is the outermost
# --8<-- [end:wrappers]

print("four kinds, one list, two wrappers")
