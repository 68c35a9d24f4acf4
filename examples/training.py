"""Training from Python: a short run, one's own network and callback, going on, turn by turn."""

import tempfile

import gymnasium
from torch import nn

import shoal
from shoal.compat import ParallelEnv, PPOTrainer
from shoal.training import StopAt

folder = tempfile.TemporaryDirectory()
short = {"run_dir": folder.name, "shows": False, "calibrate": False, "n_steps": 64, "n_epochs": 4}

# --8<-- [start:train]
run = shoal.train("ppo", env="CartPole-v1", n_envs=8, total_steps=4096, seed=1, **short)

player = shoal.load(run.folder)
action = player.act([0.0, 0.0, 0.05, 0.0])  # 0 or 1
found = shoal.evaluate(run.folder, episodes=5)
# --8<-- [end:train]


# --8<-- [start:policy]
class MyNetwork(nn.Module):
    """Called with observations it returns parameters of the actions, and values."""

    def __init__(self, observation_space, num_parameters):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observation_space.shape[0], 32), nn.ReLU())
        self.actions, self.value = nn.Linear(32, num_parameters), nn.Linear(32, 1)

    def forward(self, observations):
        features = self.body(observations)
        return self.actions(features), self.value(features)[:, 0]


own = shoal.train(
    "ppo",
    env="CartPole-v1",
    n_envs=8,
    total_steps=100_000,
    policy=MyNetwork,
    callbacks=[StopAt(22)],  # when the latest 100 episodes are good enough
    **short,
)
# --8<-- [end:policy]


# --8<-- [start:callback]
class Heavier:
    """Whenever the pole stays up for long enough, it falls faster; and learning slows down."""

    def __init__(self):
        self.gravity, self.rate = 9.8, 1e-3

    def __call__(self, run):
        if run.metrics.get("episode/length_mean", 0.0) < 22:
            return
        self.gravity, self.rate = self.gravity + 0.2, self.rate * 0.9
        run.envs.set_attr("gravity", self.gravity)  # in all environments, as they stand
        run.change(learning_rate=self.rate)  # from the next update on
        run.write({"task/gravity": self.gravity})


heavier = Heavier()
shoal.train("ppo", env="CartPole-v1", n_envs=8, total_steps=8192, callbacks=[heavier], **short)
# --8<-- [end:callback]

# --8<-- [start:resume]
further = shoal.train("ppo", resume_from=run.folder, total_steps=8192, shows=False)
# --8<-- [end:resume]

# --8<-- [start:compat]
envs = ParallelEnv([lambda: gymnasium.make("CartPole-v1")] * 4, start_method="forkserver")
observations, infos = envs.reset(seed=7)  # environment i has seed 7 + i
envs.close()

with PPOTrainer("CartPole-v1", n_envs=4, learning_rate=1e-3, seed=7) as trainer:
    while trainer.train_episode_vectorized()["steps"] < 2048:  # one rollout, one update
        pass
    told = trainer.train_episode()  # as many updates as it takes until an episode has ended
    trainer.save(f"{folder.name}/mine.safetensors")
# --8<-- [end:compat]

assert told["n_completed_episodes"] >= 1
assert action in (0, 1)
assert heavier.gravity > 9.8
assert len(found.returns) == 5
print(
    f"stopped by {own.summary['stopped_by']}; another went on to {further.summary['steps']} steps"
)
folder.cleanup()
