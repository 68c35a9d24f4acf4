"""Code written for AgileRL's AsyncPettingZooVecEnv, with one line changed."""

from mpe2 import simple_speaker_listener_v4

# --8<-- [start:program]
# from agilerl.vector.pz_async_vec_env import AsyncPettingZooVecEnv
from shoal.vector.agilerl import AsyncPettingZooVecEnv

envs = AsyncPettingZooVecEnv([simple_speaker_listener_v4.parallel_env for _ in range(6)])
observations, infos = envs.reset(seed=42)
for _ in range(60):
    actions = {agent: envs.action_space(agent).sample() for agent in envs.agents}
    observations, rewards, terminations, truncations, infos = envs.step(actions)
envs.close()
# --8<-- [end:program]

# --8<-- [start:ends]
with AsyncPettingZooVecEnv([simple_speaker_listener_v4.parallel_env] * 6) as envs:
    envs.reset(seed=42)
    for _ in range(25):  # an episode
        actions = {agent: envs.action_space(agent).sample() for agent in envs.agents}
        observations, rewards, terminations, truncations, infos = envs.step(actions)

    told = infos["listener_0"]
    assert truncations["listener_0"].all()
    assert told["_final_obs"].all()  # where an episode has ended, with what the agent saw last:
    assert told["final_obs"].shape == observations["listener_0"].shape
    assert told["alive"].all()  # the next episode has begun, and it may act there
    assert told["rewarded"].all()  # these rewards and flags are its own
# --8<-- [end:ends]

# --8<-- [start:extras]
with AsyncPettingZooVecEnv(
    [simple_speaker_listener_v4.parallel_env] * 6, num_workers=2, on_failure="restart"
) as envs:
    envs.reset(seed=42)
    assert envs.stats()["num_workers"] == 2  # six environments in two processes
# --8<-- [end:extras]

print(f"{type(envs).__module__}.{type(envs).__name__}")
