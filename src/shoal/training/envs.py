"""The environments of a run: whether they can be made here, where they run, and who is filmed."""

from __future__ import annotations

import importlib.util
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from shoal.errors import ConfigError
from shoal.monitor.video import record_first
from shoal.training.config import EnvConfig
from shoal.vector.agents.make import as_it_is, find_any
from shoal.vector.auto import decide
from shoal.vector.env import VectorEnv
from shoal.vector.make import Faults, as_mode, make, make_terms
from shoal.vector.source import Resolved, Source, own_factory, resolve

AUTORESET = "same_step"


class Package(NamedTuple):
    """What environments need that Gymnasium knows, but does not bring along."""

    where: str
    """The module that their classes are in, as the registry has it."""
    module: str
    install: str


PACKAGES = (
    Package("gymnasium.envs.box2d", "Box2D", '"gymnasium[box2d]"'),
    Package("gymnasium.envs.mujoco", "mujoco", '"gymnasium[mujoco]"'),
    Package("gymnasium.envs.phys2d", "jax", '"gymnasium[jax]"'),
    Package("gymnasium.envs.tabular", "jax", '"gymnasium[jax]"'),
    Package("ale_py", "ale_py", "ale-py"),
)


def find_env(env: Source, env_kwargs: dict[str, Any]) -> Resolved:
    """What is meant by `env`; ConfigError where there is none, or a package is missing for it."""
    if isinstance(env, str) and env.removeprefix("ale_py:").startswith("ALE/"):
        _check_installed(env, "ale_py")
        env = f"ale_py:{env.removeprefix('ale_py:')}"  # whose import registers it
    source = resolve(find_any(env), env_kwargs, [as_it_is])
    if source.spec is not None:
        _check_installed(source.spec.id, str(source.spec.entry_point))
    return source


def _check_installed(name: str, entry_point: str) -> None:
    for package in PACKAGES:
        if not entry_point.startswith(package.where):
            continue
        if importlib.util.find_spec(package.module) is None:
            raise ConfigError(
                f"the environment {name!r} needs {package.module}, which is not installed: "
                f"pip install {package.install}"
            )


def make_envs(
    config: EnvConfig, env: Source, films: Path | None = None, film_every: int = 0
) -> VectorEnv:
    """Environments that reset in the same step; lost ones are brought back to where they were.

    Every `film_every` steps of environment 0 (0: never) its next episode is filmed.
    """
    source = find_env(env, config.env_kwargs)
    with ExitStack() as until_made:
        backend, num_workers = _where(config, source, until_made)
        factories = _factories(source, config.n_envs)
        if films is not None and film_every:
            factories[0] = record_first(own_factory(source), films, film_every, as_it_is)
        return make(
            factories,
            backend=backend,
            num_workers=num_workers,
            start_method=config.parallel_start_method,
            autoreset=AUTORESET,
            copy=False,
            on_failure="replay",
            step_timeout_s=config.step_timeout_s,
        )


def _factories(source: Resolved, num_envs: int) -> list[Any]:
    """One for each environment; of a list, the first ones."""
    if not source.is_list:
        return list(source.factories) * num_envs
    if num_envs > len(source.factories):
        raise ConfigError(
            f"n_envs is {num_envs}, but the list holds {len(source.factories)} factories, one for "
            "each environment. Leave n_envs out, or give one factory for all."
        )
    return list(source.factories[:num_envs])


def _where(config: EnvConfig, source: Resolved, until_made: ExitStack) -> tuple[str, int | None]:
    """The backend and its workers, chosen as `make` would for environments that may be lost.

    A run that is lost with its process goes on from its checkpoint: so cheap environments may be
    stepped where that is fastest, in line.
    """
    if config.backend != "auto":
        return config.backend, config.num_workers
    if config.n_envs == 1 and config.step_timeout_s is None:
        return "serial", None
    isolated, start_method = config.step_timeout_s is not None, config.parallel_start_method
    terms = make_terms(source, "process", as_mode(AUTORESET), Faults(), None, start_method)
    choice = decide(source, config.n_envs, config.num_workers, isolated, terms, until_made)
    return choice.backend, choice.num_workers
