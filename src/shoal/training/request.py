"""What was asked for, seen to before anything begins: settings, environment, checkpoint, folder.

Whatever cannot be is a `ConfigError` here, and nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError, suggest
from shoal.monitor.wandb import check_installed
from shoal.training import save
from shoal.training.checkpoint import Checkpoint
from shoal.training.config import DEFAULT_STEPS, PPORun
from shoal.training.envs import find_env
from shoal.training.folder import Folder
from shoal.training.settings import from_mapping, override
from shoal.vector.source import Source

ALGORITHMS = {"ppo": PPORun}


def settle(
    what: str | PPORun,
    env: Source | None,
    overrides: Mapping[str, Any],
    *,
    is_endless: bool = False,
) -> PPORun:
    """All settings of a run; unless it `is_endless` it has a goal, if nobody gives it another."""
    base = base_of(what, overrides.get("resume_from")) if isinstance(what, str) else what
    count = len(env) if isinstance(env, list | tuple) else None
    given = overrides if count is None else {"n_envs": count, **overrides}
    config = override(base, **_named(env), **given)
    if count is not None and config.envs.n_envs != count:
        raise ConfigError(
            f"n_envs is {config.envs.n_envs}, but the list holds {count} factories, one for each "
            "environment. Leave n_envs out."
        )
    has_goal = (config.goal.total_steps, config.goal.num_episodes) != (None, None)
    if not has_goal and not is_endless:
        return override(config, total_steps=DEFAULT_STEPS)
    return config


def kind_of(algorithm: str) -> type[PPORun]:
    """What a run of it can be told."""
    if algorithm not in ALGORITHMS:
        raise ConfigError(f"there is no algorithm {algorithm!r}. {suggest(algorithm, ALGORITHMS)}")
    return ALGORITHMS[algorithm]


def base_of(algorithm: str, resume_from: str | Path | None) -> PPORun:
    """What is not said is as in the run that is gone on with, or else the default."""
    kind = kind_of(algorithm)
    if resume_from is None:
        return kind()
    path, checkpoint = save.find(Path(resume_from))
    made_by = checkpoint.about["algorithm"]
    if made_by != algorithm:
        raise ConfigError(f"{path} is a checkpoint of {made_by!r}; {algorithm!r} cannot go on.")
    return config_of(checkpoint, path)


def config_of(checkpoint: Checkpoint, path: Path) -> PPORun:
    """With what a checkpoint was made."""
    return from_mapping(PPORun, checkpoint.about["config"], str(path))


def source_of(env: Source | None, config: PPORun, checkpoint: Path | None = None) -> Source:
    """The environment that is meant: one that can be made here."""
    source = config.envs.env if env is None else env
    try:
        find_env(source, config.envs.env_kwargs)
    except ConfigError as problem:
        if env is not None or checkpoint is None:
            raise
        raise ConfigError(
            f"{problem} {checkpoint} was made with this environment; if it came from Python, give "
            "it here too (env=..., or --env module:factory)."
        ) from problem
    return source


def check_packages(config: PPORun) -> None:
    """Whether there is what this run writes with, where not everybody has it."""
    if config.output.wandb:
        check_installed()


def checkpoint_of(config: PPORun) -> Checkpoint | None:
    """Where the run goes on from; None for one that begins."""
    if config.run.resume_from is None:
        return None
    path, checkpoint = save.find(config.run.resume_from)
    before, now = config_of(checkpoint, path).envs.n_envs, config.envs.n_envs
    if before != now:
        raise ConfigError(
            f"{path} is a checkpoint of {before} environments, and n_envs is {now}: a run goes on "
            "with as many as it had. Leave n_envs out."
        )
    return checkpoint


def folder_of(config: PPORun, checkpoint: Checkpoint | None) -> Folder:
    """A new one; a run that goes on from its folder, or from that of its checkpoints, has its own.

    From a file it goes on in a new one.
    """
    output, before = config.output, config.run.resume_from
    if before is not None and checkpoint is not None and before.is_dir():
        is_run = Folder(before, before).config.is_file()
        root = before if is_run else save.run_of(before, checkpoint)
        if root is not None:
            return Folder.at(root, output.checkpoint_dir)
    return Folder.create(output.run_dir, f"ppo-{config.envs.env}", output.checkpoint_dir)


def in_folder(config: PPORun, folder: Folder) -> PPORun:
    """The settings that a folder keeps.

    They say where its checkpoints are wherever they are read, and a run that goes on in its own
    folder repeats from its start.
    """
    if config.output.checkpoint_dir is not None:
        place = config.output.checkpoint_dir.absolute()
        config = replace(config, output=replace(config.output, checkpoint_dir=place))
    if folder.config.is_file():
        config = replace(config, run=replace(config.run, resume_from=None))
    return config


def _named(env: Source | None) -> dict[str, str]:
    """What a configuration can say of an environment."""
    if env is None:
        return {}
    if isinstance(env, list | tuple) and env:
        return _named(env[0])
    return {"env": env if isinstance(env, str) else getattr(env, "__name__", type(env).__name__)}
