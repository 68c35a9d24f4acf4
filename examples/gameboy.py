"""An adventure on emulated Game Boys: many at once, states, levels, a cartridge of one's own."""

import tempfile
from pathlib import Path

import numpy as np

import shoal
from shoal.envs import GameBoyEnv
from shoal.envs.gameboy.env import ROM
from shoal.envs.gameboy.players import ScriptedPlayer

# --8<-- [start:make]
envs = shoal.make("shoal.envs.gameboy:shoal/Tidekeep-v0", num_envs=8, seed=0)
observations, infos = envs.reset()
observations, rewards, *_ = envs.step(envs.action_space.sample())
# --8<-- [end:make]
assert observations.shape == (8, 71)
envs.close()

# --8<-- [start:states]
env = GameBoyEnv()
env.reset(options={"level": 77})
for _ in range(5):
    env.step(5)  # left

state = env.save_state()  # bytes, or write them to a file
episode = env.save()  # the same, and what the console does not know of its episode
expected = env.step(3)[0]

env.reset(options={"state": state})  # bytes, or the path of such a file: an episode begins there
assert np.array_equal(env.step(3)[0], expected)
env.reset(options={"state": episode})  # the episode goes on
assert np.array_equal(env.step(3)[0], expected)
# --8<-- [end:states]

own = Path(tempfile.mkdtemp())
(own / "my.gb").write_bytes(ROM.read_bytes())
(own / "my.yaml").write_text("fields: {hearts: {address: 0xC008, scale: 3}}\n")

# --8<-- [start:own]
mine = GameBoyEnv(rom=own / "my.gb", ram_map=own / "my.yaml", frames_per_step=24, press_frames=8)
mine.reset(seed=0)
# --8<-- [end:own]
mine.close()

# --8<-- [start:players]
player, ended = ScriptedPlayer(), False
env.reset(options={"level": 77})
steps = 0
while not ended:
    *_, ended, _, info = env.step(player.act(env))
    steps += 1
# --8<-- [end:players]
env.close()
print(f"the pearl after {steps} steps" if "goal" in info else "lost")
