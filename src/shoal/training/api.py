"""`shoal.train`, `shoal.load`, `shoal.evaluate`: training from Python as from the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.algos.agent import Agent, MakeNetwork
from shoal.errors import ConfigError, suggest
from shoal.monitor import Undertaking
from shoal.training import save
from shoal.training.calibrate import one_env_steps_per_s
from shoal.training.checkpoint import Checkpoint
from shoal.training.config import PPORun
from shoal.training.evaluate import Evaluation, Player
from shoal.training.evaluate import evaluate as play_episodes
from shoal.training.folder import Folder
from shoal.training.loop import Callback
from shoal.training.ppo import Training, threads
from shoal.training.run import Conduct, Run
from shoal.training.settings import dump_yaml, from_mapping, override, to_mapping
from shoal.training.spaces import space_of
from shoal.vector.source import Source, resolve

ALGORITHMS = {"ppo": PPORun}


def train(
    what: str | PPORun = "ppo",
    *,
    env: Source | None = None,
    policy: MakeNetwork | None = None,
    callbacks: Sequence[Callback] = (),
    shows: bool | None = None,
    **overrides: Any,
) -> Run:
    """Train an agent; returns what the run has left: its folder, the agent and a summary.

    `what` is an algorithm's name or a whole configuration, `env` anything that `shoal.make` takes;
    other keywords are fields of the configuration, of whichever group (`n_envs=8`,
    `learning_rate=1e-3`). `policy` makes the network: called with the observation space and the
    number of parameters that actions need, it returns a `torch.nn.Module`. A callback is called
    after every update, and can stop the run, change things and write metrics. Progress is shown
    where there is a terminal or a notebook; `shows` decides otherwise.
    """
    base = base_of(what, overrides.get("resume_from")) if isinstance(what, str) else what
    config = override(base, **_named(env), **overrides)
    if config.goal.total_steps is None and config.goal.num_episodes is None:
        raise ConfigError("when is it over? Give total_steps or num_episodes.")
    source = config.envs.env if env is None else env
    resumed = None
    if config.run.resume_from is not None:
        _, resumed = save.find(config.run.resume_from)
    folder = _folder(config)
    with (
        _opened(config, source, policy, folder) as training,
        threads(config.run.num_threads, training.agent),
    ):
        if resumed is not None:
            training.resume(resumed)
        folder.config.write_text(dump_yaml(config))
        alone = None
        if config.output.calibrate and config.envs.n_envs > 1:
            alone = one_env_steps_per_s(config, source, policy)
        undertaking = _undertaking(config, training, folder)
        conduct = Conduct(training, folder, config.output, undertaking, to_mapping(config), alone)
        return conduct.run(callbacks, sys.stderr.isatty() if shows is None else shows)


def _opened(config: PPORun, source: Source, policy: MakeNetwork | None, folder: Folder) -> Training:
    """The run's parts; where they cannot be made no empty folder is left."""
    try:
        return Training(config, source, policy, folder.videos)
    except BaseException:
        folder.discard()
        raise


def base_of(algorithm: str, resume_from: str | Path | None) -> PPORun:
    """What is not said is as in the run that is gone on with, or else the default."""
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"there is no algorithm {algorithm!r}. {suggest(algorithm, ALGORITHMS)}")
    if resume_from is None:
        return ALGORITHMS[algorithm]()
    path, checkpoint = save.find(Path(resume_from))
    return config_of(checkpoint, path)


def config_of(checkpoint: Checkpoint, path: Path) -> PPORun:
    """With what a checkpoint was made."""
    return from_mapping(PPORun, checkpoint.about["config"], str(path))


def _named(env: Source | None) -> dict[str, str]:
    """What a configuration can say of an environment."""
    if env is None:
        return {}
    return {"env": env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)}


def _folder(config: PPORun) -> Folder:
    """A new one; a run that goes on from its folder goes on in it."""
    output, before = config.output, config.run.resume_from
    if before is not None and Folder(before, before).config.is_file():
        return Folder.at(before, output.checkpoint_dir)
    return Folder.create(output.run_dir, f"ppo-{config.envs.env}", output.checkpoint_dir)


def _undertaking(config: PPORun, training: Training, folder: Folder) -> Undertaking:
    stats = training.envs.stats()
    return Undertaking(
        algorithm="PPO",
        env=config.envs.env,
        num_envs=config.envs.n_envs,
        backend=stats["backend"],
        start_method=stats["start_method"],
        total_steps=config.goal.total_steps,
        total_episodes=config.goal.num_episodes,
        log_interval=config.output.log_interval,
        device=str(training.device),
        folder=folder.root,
        first_step=training.source.step,
        first_episode=training.source.episodes.num_ended,
    )


def load(path: str | Path, policy: MakeNetwork | None = None) -> Player:
    """The agent of a run's folder (its best) or of a checkpoint, ready to `act`.

    A policy that was given to `train` has to be given here, too: no code is kept in a checkpoint.
    """
    agent, _ = _agent(Path(path), policy)
    return Player(agent)


def _agent(path: Path, policy: MakeNetwork | None) -> tuple[Agent, PPORun]:
    best = Folder(path, path / "checkpoints").checkpoint("best_model")
    found, checkpoint = save.find(best if best.is_file() else path)
    about, config = checkpoint.about, config_of(checkpoint, found)
    spaces = space_of(about["observation_space"]), space_of(about["action_space"])
    agent = Agent(*spaces, config.network, policy)
    save.load_weights(agent, checkpoint)
    return agent, config


def evaluate(
    path: str | Path,
    *,
    episodes: int = 100,
    env: Source | None = None,
    policy: MakeNetwork | None = None,
    seed: int = 0,
    deterministic: bool = True,
) -> Evaluation:
    """How the agent of a run's folder or checkpoint does, on its own environment or another."""
    agent, config = _agent(Path(path), policy)
    source = config.envs.env if env is None else env
    factory = resolve(source, config.envs.env_kwargs).factories[0]
    return play_episodes(agent, factory, episodes, seed=seed, deterministic=deterministic)
