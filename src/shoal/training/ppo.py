"""A PPO run, from its configuration to the folder that it leaves."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from shoal.algos.agent import Agent, MakeNetwork
from shoal.algos.company import Company
from shoal.algos.networks import is_image
from shoal.errors import ConfigError
from shoal.rollout.collector import Collector, Goal
from shoal.training import save
from shoal.training.checkpoint import Checkpoint
from shoal.training.config import PPORun
from shoal.training.envs import find_env, make_envs
from shoal.training.evaluate import Evaluation, evaluate, film, warn_of_cut
from shoal.training.lineup import agent_of, describe_cast, learner_of, play_of, troupe_of
from shoal.training.loop import Progress
from shoal.training.players import Plays, player_of
from shoal.training.settings import override, to_mapping
from shoal.training.spaces import describe
from shoal.vector.source import Source, own_factory

log = logging.getLogger("shoal")

_SMALL = 1_000_000
"""Weights up to which one thread computes faster than several."""
_LASTING = ("n_steps", "max_grad_norm", "normalize_rewards")
"""Settings that parts are made with, once."""


class Training:
    """Environments, agent, learner and source of one run; `with` closes what has to be closed."""

    def __init__(
        self,
        config: PPORun,
        env: Source,
        make_network: MakeNetwork | None = None,
        films: Path | None = None,
    ) -> None:
        self.config, self.env = config, env
        self._has_warned = False
        self.envs = make_envs(config.envs, env, films, config.output.video_every)
        try:
            self._assemble(make_network)
        except BaseException:
            self.envs.close()
            raise

    def _assemble(self, make_network: MakeNetwork | None) -> None:
        config, envs = self.config, self.envs
        self.troupe = troupe_of(envs, config.envs.policies, config.ppo.central_critic)
        with (
            seeded(config.run.seed),
            _so_many_threads(1),
        ):  # with more, weights are rounded otherwise
            self.agent = agent_of(envs, self.troupe, config.network, make_network)
        self.device = device_for(config.run.device, self.agent)
        self.agent.to(self.device)
        self.learner = learner_of(envs, self.troupe, self.agent, config.ppo, config.run.seed)
        goal = Goal(config.goal.total_steps, config.goal.num_episodes)
        self.source = self.collector(config.ppo.n_steps, goal, config.envs.overlap)
        self._kept = save.Kept(self.agent, self.learner, self.source)
        self.progress = Progress(envs=envs, change=self._change)
        """How far the run has come, for the loop to count on in."""

    def collector(self, horizon: int, goal: Goal, overlap: bool = False) -> Collector[Any]:
        """What collects rollouts of so many steps with this agent in these environments."""
        seed, by_chance = self.config.run.seed, self.config.envs.random_opponents
        play = play_of(self.envs, self.troupe, self.agent, by_chance)
        return Collector(self.envs, play, horizon=horizon, seed=seed, goal=goal, overlap=overlap)

    def _change(self, **settings: Any) -> None:
        lasting = (*_LASTING, "gamma") if self.config.ppo.normalize_rewards else _LASTING
        fixed = [name for name in settings if name in lasting]
        if fixed:
            raise ConfigError(
                f"{', '.join(fixed)} cannot be changed while a run goes on: its parts were made "
                "with it. Set it when the run begins."
            )
        self.learner.config = override(self.learner.config, **settings)
        self.config = replace(self.config, ppo=self.learner.config)

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *error: Any) -> None:
        self.envs.__exit__(*error)

    def checkpoint(self) -> Checkpoint:
        """All that a later run needs in order to go on exactly from here."""
        envs = self.envs
        return self._kept.checkpoint(
            {
                "algorithm": "ppo",
                "step": self.source.step,
                "time_s": self.progress.metrics.get("run/time_s", 0.0),
                "env": self.config.envs.env,
                "observation_space": describe(envs.single_observation_space),
                "action_space": describe(envs.single_action_space),
                "cast": None if self.troupe is None else describe_cast(self.troupe),
                "config": to_mapping(self.config),
            }
        )

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint; nothing was done before."""
        about, envs = checkpoint.about, self.envs
        save.check_spaces(about, envs.single_observation_space, envs.single_action_space)
        lost = self._kept.put(checkpoint)
        num_episodes = self.source.episodes.num_ended
        self.progress.go_on(self.source.step, num_episodes, about.get("time_s", 0.0))
        if lost:
            log.warning(
                "the running episodes of environments %s could not be replayed to where they "
                "were, and begin anew: these environments do not follow from seed and actions.",
                ", ".join(map(str, lost)),
            )

    def film(self, path: Path) -> None:
        """One episode of the policy, as a video."""
        source = find_env(self.env, self.config.envs.env_kwargs)
        film(self.player(against="itself"), own_factory(source), path, seed=self.config.run.seed)

    def evaluate(self, num_episodes: int) -> Evaluation:
        """On an environment of its own."""
        factory = find_env(self.env, self.config.envs.env_kwargs).factories[0]
        player = self.player(self.config.output.eval_against)
        most, seed = self.config.output.eval_max_steps, self.config.run.seed
        found = evaluate(player, factory, num_episodes, seed=seed, max_steps=most)
        if found.num_cut and not self._has_warned:
            warn_of_cut(found, most)
            self._has_warned = True
        return found

    def player(self, against: str, deterministic: bool | None = None) -> Plays:
        """What plays episodes with this agent; `against` whom, where agents take turns.

        `deterministic` None: as the configuration says of evaluations.
        """
        if deterministic is None:
            deterministic = not self.config.output.eval_stochastic
        return player_of(
            self.agent,
            self.troupe,
            self.envs.single_observation_space,
            deterministic=deterministic,
            seed=self.config.run.seed,
            against=against,
        )


def device_for(asked: str, agent: Agent | Company) -> torch.device:
    """Where to compute; `auto` takes a GPU for pictures and for large networks."""
    has = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if asked != "auto":
        if not has[asked]:
            raise ConfigError(f"device is {asked!r}, which this machine does not have. Use 'cpu'.")
        return torch.device(asked)
    agents = [agent] if isinstance(agent, Agent) else list(agent.agents.values())
    has_pictures = any(is_image(leaf.space) for one in agents for leaf in one.layout.leaves)
    if has_pictures or _size(agent) > _SMALL:
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if has[name]))
    return torch.device("cpu")


def _size(agent: Agent | Company) -> int:
    return sum(one.numel() for one in agent.parameters())


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While PyTorch draws from this seed, as for first weights; before and after, as it would."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def threads(asked: int | None, agent: Agent | Company) -> Iterator[None]:
    """While PyTorch and NumPy use so many threads; None: one, where the network is small."""
    if asked is None:
        asked = 1 if _size(agent) <= _SMALL else torch.get_num_threads()
    with _so_many_threads(asked):
        yield


@contextmanager
def _so_many_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)
