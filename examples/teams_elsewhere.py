"""What PettingZoo and SuperSuit code does with teams, done with Shoal."""

import numpy as np
from mpe2 import simple_adversary_v3, simple_spread_v3

import shoal
from shoal.envs import FlattenMultiAgentWrapper, GridWorldEnvMultiAgent

# --8<-- [start:loop]
plain = simple_spread_v3.parallel_env()
observations, infos = plain.reset(seed=7)
while plain.agents:
    actions = {agent: plain.action_space(agent).sample() for agent in plain.agents}
    observations, rewards, terminations, truncations, infos = plain.step(actions)

# The same for eight at once; the first of them is the one above.
envs = shoal.make_team(simple_spread_v3.parallel_env, num_envs=8, autoreset="same_step")
observations, infos = envs.reset(seed=7)
for _ in range(25):
    actions = {agent: envs.action_space(agent).sample() for agent in envs.possible_agents}
    observations, rewards, terminations, truncations, infos = envs.step(actions)
assert truncations["agent_0"].all()
# --8<-- [end:loop]

# --8<-- [start:rows]
stacked = envs.stacked()  # [num_envs, num_agents, ...], and no copy
rows = stacked.reshape(-1, stacked.shape[-1])  # as SuperSuit has them: [num_envs * num_agents, ...]
chosen = np.zeros(len(rows), np.int64)  # one action for each row
actions = dict(zip(envs.possible_agents, chosen.reshape(8, 3).T, strict=True))
observations, rewards, *_ = envs.step(actions)
of_rows = np.stack([rewards[agent] for agent in envs.possible_agents], axis=1).ravel()
assert len(of_rows) == len(rows) == 24
# --8<-- [end:rows]
envs.close()

# --8<-- [start:different]
with shoal.make_team(simple_adversary_v3.parallel_env, num_envs=8) as envs:
    observations, _ = envs.reset(seed=7)
    assert observations["adversary_0"].shape == (8, 8)
    assert observations["agent_0"].shape == (8, 10)  # each as wide as its own space: no padding
# --8<-- [end:different]


# --8<-- [start:as_one]
def as_one():
    return FlattenMultiAgentWrapper(GridWorldEnvMultiAgent(agents=2))


with shoal.make(as_one, num_envs=8) as envs:
    observations, infos = envs.reset(seed=7)
    assert envs.single_action_space.nvec.tolist() == [5, 5]  # one action for both hunters
# --8<-- [end:as_one]

print("a team, rows, two kinds of agents, and two hunters as one")
