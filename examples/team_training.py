"""Training several agents: a short run, and each of them asked by its name."""

import tempfile

from mpe2 import simple_spread_v3

import shoal

folder = tempfile.TemporaryDirectory()
short = {"run_dir": folder.name, "shows": False, "calibrate": False, "n_steps": 25}

# --8<-- [start:train]
run = shoal.train(
    "ppo",
    env="mpe2.simple_spread_v3:parallel_env",
    n_envs=4,
    total_steps=200,
    policies=("first=agent_0", "others=agent_1,agent_2"),
    **short,
)
# --8<-- [end:train]

env = simple_spread_v3.parallel_env()
observations, infos = env.reset(seed=1)
observation = observations["agent_0"]
# --8<-- [start:load]
members = shoal.load(run.folder)
action = members.act(observation, agent="agent_0")
action = members["agent_0"].act(observation)  # the same
members.begin()  # a new episode: policies with a memory forget
# --8<-- [end:load]
assert env.action_space("agent_0").contains(action)
folder.cleanup()
print(f"policies: {sorted(run.agent.agents)}")
