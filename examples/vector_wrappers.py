"""Gymnasium's vector wrappers on top: a Shoal environment is a gymnasium.vector.VectorEnv."""

# --8<-- [start:wrap]
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics

import shoal

envs = shoal.make("CartPole-v1", num_envs=8)
envs = NormalizeObservation(RecordEpisodeStatistics(envs))
observations, infos = envs.reset(seed=0)
envs.action_space.seed(0)
lengths = []
for _ in range(200):
    *_, infos = envs.step(envs.action_space.sample())
    if "episode" in infos:
        lengths += infos["episode"]["l"][infos["_episode"]].tolist()
# --8<-- [end:wrap]

assert lengths == envs.unwrapped.stats()["episode_lengths"][: len(lengths)]
envs.close()
print(f"{len(lengths)} episodes, the engine counts the same")
