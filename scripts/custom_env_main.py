"""Trains Stable-Baselines3's PPO on the grid world, all hunters together as one agent.

    python scripts/custom_env_main.py --num-envs 8 --total-timesteps 250000

With one environment there is no parallelism; with more they run in worker processes. There is no
main guard, on purpose: worker processes do not import the script that started them. So there is
also exactly one run of Weights & Biases (`--wandb`), however many workers there are.
"""

import argparse
import dataclasses
import functools
import sys
import time
from pathlib import Path

from shoal.envs import FlattenMultiAgentWrapper, GridWorldConfig, GridWorldEnvMultiAgent
from shoal.errors import ShoalError
from shoal.extras import needs
from shoal.monitor import record_first

ROOT = Path(__file__).parents[1]
POLICY = "MlpPolicy"

config = {
    "num_envs": 8,  # 1: no parallelism; more: in worker processes
    "total_timesteps": 250_000,
    "n_steps": 256,  # of each environment, before each update
    "policy_type": POLICY,
    "env_config": ROOT / "configs" / "gridworld.yaml",
    "folder": Path("runs") / "custom_env",
    "video_every": 2_000,  # steps of environment 0; 0 for no videos
    "seed": 0,
}
LOWEST = {"num_envs": 1, "total_timesteps": 1, "n_steps": 1, "video_every": 0, "seed": 0}


def parse(arguments):
    """The config, with what the command line says of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in config.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, help=f"default {default}")
    parser.add_argument(
        "--wandb", metavar="PROJECT", nargs="?", const="shoal", help="log to Weights & Biases"
    )
    given = parser.parse_args(arguments)
    check(parser, given)
    return given


def check(parser, given):
    """End with status 2 where something cannot be, before anything has been started."""
    for name, lowest in LOWEST.items():
        if getattr(given, name) < lowest:
            flag = f"--{name.replace('_', '-')}"
            parser.error(f"{flag} is {getattr(given, name)}; expected at least {lowest}.")
    if given.num_envs * given.n_steps < 2:
        parser.error(
            "--num-envs 1 with --n-steps 1 is an update from one step; PPO needs two. Raise either."
        )
    if given.policy_type != POLICY:
        parser.error(
            f"--policy-type is {given.policy_type!r}; expected {POLICY!r}, which is for rows of "
            "numbers, as these environments give them."
        )


def make_env(world):
    return FlattenMultiAgentWrapper(GridWorldEnvMultiAgent.from_config(world))


def make_envs(given):
    """Environments as Stable-Baselines3 takes them; the first one films itself, and no other."""
    world = GridWorldConfig.from_yaml(given.env_config)
    world = dataclasses.replace(world, render_mode="rgb_array")
    with needs("stable_baselines3", "sb3"):
        from stable_baselines3.common.vec_env import VecMonitor

        from shoal.vector.sb3 import DummyVecEnv, SubprocVecEnv

    env_fns = [functools.partial(make_env, world)] * given.num_envs
    if given.video_every:
        env_fns[0] = record_first(env_fns[0], given.folder / "videos", given.video_every)
    if given.num_envs > 1:  # a worker that dies costs its environments an episode, nobody else
        envs = SubprocVecEnv(env_fns, on_failure="restart")
    else:
        envs = DummyVecEnv(env_fns)
    stats = envs.stats()
    where = f"{stats['num_workers']} worker processes" if given.num_envs > 1 else "this process"
    print(f"environments: {given.num_envs}, in {where}")
    # Episodes are counted here, so that workers need not import Stable-Baselines3 and PyTorch.
    return VecMonitor(envs)


def begin_run(given):
    """The one run of Weights & Biases, which gets what TensorBoard gets."""
    with needs("wandb", "wandb"):
        import wandb
    settings = {name: str(value) for name, value in vars(given).items() if name != "wandb"}
    return wandb.init(
        project=given.wandb, config=settings, dir=str(given.folder), sync_tensorboard=True
    )


def train(given):
    given.folder.mkdir(parents=True, exist_ok=True)
    run = begin_run(given) if given.wandb else None
    envs = make_envs(given)
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)  # networks this small are no quicker with more, and workers need cores
    try:
        model = PPO(
            given.policy_type,
            envs,
            n_steps=given.n_steps,
            seed=given.seed,
            device="cpu",
            verbose=1,
            tensorboard_log=str(given.folder / "tensorboard"),
        )
        begun = time.perf_counter()
        model.learn(given.total_timesteps)
        seconds = time.perf_counter() - begun
        model.save(given.folder / "model.zip")
    finally:
        envs.close()
        if run is not None:
            run.finish()
    steps = model.num_timesteps
    print(f"{steps} steps in {seconds:.0f} s ({steps / seconds:.0f} a second), in {given.folder}")


try:
    train(parse(sys.argv[1:]))
except ShoalError as problem:
    sys.exit(f"custom_env_main: {problem}")
