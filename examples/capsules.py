"""What went wrong in a worker, once more, in one process."""

import os
import subprocess
import sys
import tempfile

import gymnasium

import shoal

folder = tempfile.TemporaryDirectory()
os.environ["SHOAL_CAPSULES"] = folder.name  # so that this example leaves nothing behind


# --8<-- [start:raised]
class Buggy(gymnasium.Wrapper):
    """Raises where the cart goes too far."""

    def step(self, action):
        observation, *rest = self.env.step(action)
        if abs(observation[0]) > 0.2:
            raise ValueError("no track here")
        return observation, *rest


with shoal.make("CartPole-v1", 4, backend="process", num_workers=2, wrappers=[Buggy]) as envs:
    envs.action_space.seed(1)
    envs.reset(seed=7)
    try:
        while True:
            envs.step(envs.action_space.sample())
    except shoal.EnvRaised as error:
        print(str(error).partition(" (")[0])
        capsule = error.capsule
# --8<-- [end:raised]

# --8<-- [start:replay]
command = [sys.executable, "-m", "shoal", "replay", capsule]  # in a shell: shoal replay FILE
replayed = subprocess.run(command, capture_output=True, text=True)
print(*replayed.stdout.splitlines()[-2:], sep="\n")
print("exit code", replayed.returncode)
# --8<-- [end:replay]

folder.cleanup()
