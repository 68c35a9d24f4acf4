"""A team that acts at once, and agents that take turns: many PettingZoo environments at a time."""

import numpy as np

import shoal

# --8<-- [start:team]
envs = shoal.make_team("mpe2.simple_spread_v3:parallel_env", num_envs=4, env_kwargs={"N": 3})
observations, infos = envs.reset(seed=7)

for _ in range(30):
    actions = {agent: envs.action_space(agent).sample() for agent in envs.possible_agents}
    observations, rewards, terminations, truncations, infos = envs.step(actions)

assert envs.possible_agents == ["agent_0", "agent_1", "agent_2"]
assert observations["agent_0"].shape == (4, 18)  # [num_envs, ...]
assert rewards["agent_0"].shape == (4,)
# --8<-- [end:team]

# --8<-- [start:stacked]
assert envs.stacked().shape == (4, 3, 18)  # [num_envs, num_agents, ...], without a copy
assert envs.alive.shape == (4, 3)  # who may act in the next step
# --8<-- [end:stacked]
envs.close()

# --8<-- [start:turns]
envs = shoal.make_turns("classic/connect_four_v3", num_envs=4)
random = np.random.default_rng(7)
turn = envs.reset(seed=7)
wins = np.zeros(2)

for _ in range(300):
    np.add.at(wins, turn.agent_ids, turn.rewards > 0)
    chances = random.random(turn.action_masks.shape) * turn.action_masks
    turn = envs.step(chances.argmax(1))  # what is given for a player who is done does not matter

assert turn.observations["observation"].shape == (4, 6, 7, 2)
assert set(turn.agent_ids) <= {0, 1}  # places in envs.possible_agents
# --8<-- [end:turns]
episodes = envs.stats()["episodes"]
envs.close()
assert wins.sum() > 0
print(f"{episodes} games of connect four")
