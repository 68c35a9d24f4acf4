"""Talking to single environments: call, get_attr, set_attr."""

import gymnasium

import shoal

# --8<-- [start:calls]
envs = shoal.make("Pendulum-v1", num_envs=4)
envs.reset(seed=0)

envs.set_attr("g", [1.0, 2.0, 3.0, 4.0])  # a list or tuple: one value each
assert envs.get_attr("g") == (1.0, 2.0, 3.0, 4.0)
envs.set_attr("g", 9.8, env_ids=[0, 3])  # anything else: for all that are named
assert envs.get_attr("g", env_ids=[3, 2]) == (9.8, 3.0)  # in the order named

assert envs.call("has_wrapper_attr", "max_torque") == (True,) * 4
# --8<-- [end:calls]

# --8<-- [start:failing]
try:
    envs.call("get_wrapper_attr", "no_such_thing", env_ids=[2])
except shoal.EnvRaised as error:
    print(f"env {error.env_ids[0]}: {error.__cause__!r}")

envs.step(envs.action_space.sample())  # its worker is well
# --8<-- [end:failing]

envs.close()

# --8<-- [start:render]
with shoal.make(lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array"), num_envs=2) as envs:
    envs.reset(seed=0)
    frames = envs.render()  # one frame per environment
    one = envs.call("render", env_ids=[1])  # or of those that are wanted
    assert (len(frames), len(one)) == (2, 1)
# --8<-- [end:render]

print("four environments, one that failed, none that was harmed")
