"""Training from Python: a short run, a network and a callback of one's own, and going on."""

import tempfile

from torch import nn

import shoal

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


class StopAt:
    """Ends a run when episodes are good enough."""

    def __init__(self, wanted):
        self.wanted = wanted

    def __call__(self, run):
        if run.metrics.get("episode/return_mean", 0.0) >= self.wanted:
            run.stop(f"a mean return of {self.wanted}")


own = shoal.train(
    "ppo",
    env="CartPole-v1",
    n_envs=8,
    total_steps=100_000,
    policy=MyNetwork,
    callbacks=[StopAt(25)],
    **short,
)
# --8<-- [end:policy]

# --8<-- [start:resume]
further = shoal.train("ppo", resume_from=run.folder, total_steps=8192, shows=False)
# --8<-- [end:resume]

assert action in (0, 1)
assert len(found.returns) == 5
print(
    f"stopped by {own.summary['stopped_by']}; another went on to {further.summary['steps']} steps"
)
folder.cleanup()
