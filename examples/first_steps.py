"""The ten-line program. It has no main guard: workers never import this file."""

# --8<-- [start:ten_lines]
import shoal

with shoal.make("CartPole-v1", num_envs=64) as envs:
    observations, infos = envs.reset(seed=7)
    for _ in range(100):
        actions = envs.action_space.sample()
        observations, rewards, terminations, truncations, infos = envs.step(actions)
    stats = envs.stats()

print(f"{stats['episodes']} episodes in {stats['steps']} steps, {stats['num_workers']} workers")
# --8<-- [end:ten_lines]

assert observations.shape == (64, 4)
assert rewards.dtype == "float64"
assert terminations.dtype == truncations.dtype == "bool"
