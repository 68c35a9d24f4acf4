"""The environments of a run: where they run, and who is filmed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from shoal.monitor.video import record_first
from shoal.training.config import EnvConfig
from shoal.vector.auto import decide
from shoal.vector.env import VectorEnv
from shoal.vector.make import Faults, as_mode, make, make_terms
from shoal.vector.source import Resolved, Source, own_factory, resolve

AUTORESET = "same_step"


def make_envs(
    config: EnvConfig, env: Source, films: Path | None = None, film_every: int = 0
) -> VectorEnv:
    """Environments that reset in the same step; lost ones are brought back to where they were.

    Every `film_every` steps of environment 0 (0: never) its next episode is filmed.
    """
    source = resolve(env, config.env_kwargs)
    with ExitStack() as until_made:
        backend, num_workers = _where(config, source, until_made)
        factories: list[Any] = list(source.factories[:1]) * config.n_envs
        if films is not None and film_every:
            factories[0] = record_first(own_factory(source), films, film_every)
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
